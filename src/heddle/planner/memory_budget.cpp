#include "heddle/planner/memory_budget.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/observe/units.h"
#include "heddle/passes/recompute.h"
#include "heddle/plan/durations.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

namespace {

// What is tried, from the least work to the least memory. Limits come first: they cost nothing while experts are as
// busy as each other.
std::vector<std::string> choices(bool spread) {
  const std::string crowded = ", permute>1, expert_up>1";
  std::vector<std::string> all{""};
  if (spread) {
    for (const char* limit : {"4", "3", "2", "1.5", "1.25", "1"})
      all.push_back(fmt::format("permute>{0}, expert_up>{0}", limit));
  }
  for (const char* words : {"norm", "norm, activation", "norm, activation, mla_up"})
    all.push_back(words + (spread ? crowded : ""));
  all.push_back("light, norm" + std::string(spread ? ", expert_up>1" : ""));
  for (const char* words : {"light, norm, mla_up, expert_up", "medium, norm, mla_up", "medium, norm, mla_up, mlp",
                            "full, norm, mla_up, mlp", "full, norm, mla_up, mlp, attention, gather", "layer"})
    all.emplace_back(words);
  return all;
}

bool spreads_experts(const plan::Lowered& lowered) {
  const std::vector<ir::Listing>& listings = lowered.program.listings;
  return std::any_of(listings.begin(), listings.end(), [](const ir::Listing& listing) {
    return std::any_of(listing.ops.begin(), listing.ops.end(),
                       [](const ir::Op& op) { return op.def->moves == ir::Moves::counts; });
  });
}

// The time of what is made again in any case over that of all else, with balanced rows, on the rank where it is
// most.
double again_of(const plan::Plan& plan, const plan::Lowered& lowered) {
  const passes::Durations duration_us = plan::nominal_durations(plan.parallel.exchange, plan.rates);
  double most = 0;
  for (int r = 0; r < plan.mesh.pp; ++r) {
    const ir::Listing& listing = lowered.program.listings[static_cast<size_t>(r)];
    const int64_t rows = plan::balanced_rows(listing);
    double again = 0, all = 0;
    for (const ir::Op& op : listing.ops) {
      if (ir::once_a_step(op.phase) || op.def->cost == nullptr) continue;
      const bool runs = !op.condition || op.condition.holds(rows);
      if (runs) (op.again ? again : all) += duration_us(listing, op);
    }
    if (all > 0) most = std::max(most, again / all);
  }
  return most;
}

class Budget {
 public:
  explicit Budget(const config::RunConfig& config)
      : config_(config), plan_(train::plan_of(config)), bytes_(config.plan.memory.budget_bytes) {}

  // The step with these words.
  plan::Lowered lowered(const std::string& words) {
    plan_.memory.recompute = passes::recompute_groups(words);
    return plan::lower(config_.model, plan_);
  }

  // The most that a rank's arena takes within `limit_bytes`; ir::OutOfMemory where one needs more.
  int64_t bound(const plan::Lowered& lowered, int64_t limit_bytes) const {
    const std::vector<int>& classes = lowered.program.class_of_rank;
    int64_t most = 0;
    for (int r = 0; r < plan_.mesh.pp; ++r) {
      const int rank = static_cast<int>(std::find(classes.begin(), classes.end(), r) - classes.begin());
      most = std::max(most, runtime::arena_bytes(lowered.program, rank, config_.device.backend, limit_bytes, true,
                                                 train::room_of(config_)));
    }
    return most;
  }

  std::optional<Residency> attempt(const std::string& words, const plan::Lowered& lowered) const {
    try {
      const int64_t most = bound(lowered, bytes_);
      return Residency{words, again_of(plan_, lowered), most};
    } catch (const ir::OutOfMemory&) {
      return std::nullopt;
    }
  }

  int64_t bytes() const { return bytes_; }

 private:
  const config::RunConfig& config_;
  plan::Plan plan_;
  const int64_t bytes_;
};

constexpr int64_t kUnlimited = int64_t{1} << 50;

}  // namespace

std::optional<BudgetChoice> within_budget(const config::RunConfig& config) {
  if (config.plan.memory.budget_bytes == 0 || !config.plan.memory.recompute.empty()) return std::nullopt;
  Budget budget(config);
  BudgetChoice choice;
  const plan::Lowered plain = budget.lowered("");
  std::string least;
  for (const std::string& words : choices(spreads_experts(plain))) {
    if (const auto fits = budget.attempt(words, words.empty() ? plain : budget.lowered(words))) {
      choice.chosen = *fits;
      return choice;
    }
    choice.refused.push_back(words);
  }
  const std::string& smallest = choice.refused.back();
  config_error(
      "memory.budget is {}, no choice of what is made again keeps every rank to it for any routing; the least that "
      "does is {} with memory.recompute = \"{}\"",
      observe::bytes_text(static_cast<double>(budget.bytes())),
      observe::bytes_text(static_cast<double>(budget.bound(budget.lowered(smallest), kUnlimited))), smallest);
}

std::vector<std::string> budget_settings(const config::RunConfig& config,
                                         const std::function<void(const std::string& line)>& tell) {
  const std::optional<BudgetChoice> choice = within_budget(config);
  if (!choice) return {};
  const Residency& r = choice->chosen;
  tell(fmt::format("memory.budget {}: at most {} whatever the router does, {}",
                   observe::bytes_text(static_cast<double>(config.plan.memory.budget_bytes)),
                   observe::bytes_text(static_cast<double>(r.bound_bytes)),
                   r.recompute.empty() ? "with nothing made again"
                                       : fmt::format("with memory.recompute = \"{}\": {:.1f} % of the work again "
                                                     "where experts are as busy as each other",
                                                     r.recompute, 100 * r.again)));
  if (r.recompute.empty()) return {};
  return {"memory.recompute=" + r.recompute};
}

config::RunConfig read_within_budget(const std::string& path, const std::vector<std::string>& set) {
  config::RunConfig config = config::read_run_config(path, set);
  std::vector<std::string> all = set;
  for (std::string& setting :
       budget_settings(config, [](const std::string& line) { fmt::print(stderr, "{}\n", line); }))
    all.push_back(std::move(setting));
  return all.size() == set.size() ? config : config::read_run_config(path, all);
}

}  // namespace heddle::planner

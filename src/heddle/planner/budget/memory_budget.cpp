#include "heddle/planner/budget/memory_budget.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/parallel.h"
#include "heddle/base/say.h"
#include "heddle/observe/units.h"
#include "heddle/plan/costs/account.h"
#include "heddle/planner/budget/budget_text.h"
#include "heddle/planner/budget/candidates.h"
#include "heddle/planner/memory/budget_share.h"
#include "heddle/planner/memory/state_residency.h"

namespace heddle::planner {

namespace {

using Candidate = BudgetCandidate;
using Extent = BudgetProblem::Extent;
constexpr int kBudgetRounds = 12;   // rounds of dropping more where the walk needs more than the estimate
constexpr double kMoreRoom = 0.02;  // share of the budget that a rank is denied where its values lie badly

// One that was walked.
struct Verified {
  Candidate candidate;
  std::vector<int64_t> rank_bytes;
  double step_us = 0;
};

class BudgetChooser {
 public:
  BudgetChooser(const config::RunConfig& config, bool own_memory)
      : problem_(config, own_memory), dropper_(problem_.dropper()), rows_(residency_rows(config, own_memory)) {}

  bool anything_open() const { return problem_.open().recompute || problem_.open().offload || !rows_.empty(); }

  BudgetChoice choose() {
    plain_ = problem_.lowered({}, {});
    plain_bytes_ = measured(*problem_.lowered({}, {}, Extent::few));
    BudgetChoice choice;
    choice.free_us = problem_.times(*plain_).step_us;
    choice.fullest =
        static_cast<int>(std::max_element(plain_bytes_.begin(), plain_bytes_.end()) - plain_bytes_.begin());
    estimated_.emplace(problem_, *plain_, plain_bytes_, choice.free_us);
    if (plain_bytes_[static_cast<size_t>(choice.fullest)] <= budget()) {
      Walked walked(problem_.ranks());
      for (int r = 0; r < problem_.ranks(); ++r) walked.measured[r] = static_cast<int64_t>(plain_bytes_[r]);
      if (walk(*plain_, walked).empty())
        return explained(choice, {estimated_->begun_with({}), walked.bytes(), choice.free_us});
    }
    std::optional<Verified> best;
    double longer = 1;  // added by the walk to the step, as a factor
    for (Candidate& candidate : estimated_->best_few(rows_)) {
      const double step_us = candidate.step_us;
      if (best && longer * step_us >= best->step_us) break;
      std::optional<Verified> verified = verify(std::move(candidate));
      if (!verified || (best && verified->step_us >= best->step_us)) continue;
      longer = verified->step_us / step_us;
      best = std::move(verified);
    }
    if (!best) refuse();
    return explained(choice, or_all_alike(taken_back(std::move(*best))));
  }

 private:
  std::vector<double> measured(const plan::Lowered& lowered) const {
    std::vector<double> bytes(static_cast<size_t>(problem_.ranks()));
    for_each_index(problem_.ranks(), [&](int64_t r) {
      bytes[r] = static_cast<double>(problem_.measured_bytes(lowered, static_cast<int>(r)));
    });
    return bytes;
  }

  double budget() const { return static_cast<double>(problem_.budget_bytes()); }
  DroppedValues given(const Candidate& c) const { return estimated_->given(c); }
  BudgetProblem::Lowered lowered(const Candidate& c, Extent extent) const {
    return problem_.lowered(c.residencies, given(c), extent);
  }

  // Results of each rank with what it drops now.
  struct Walked {
    explicit Walked(int ranks) : measured(static_cast<size_t>(ranks)), keeps(static_cast<size_t>(ranks), 0) {}
    std::vector<std::optional<int64_t>> measured;
    std::vector<char> keeps;
    void forget(int rank) {
      measured[rank].reset();
      keeps[rank] = 0;
    }
    std::vector<int64_t> bytes() const {
      std::vector<int64_t> all;
      for (const auto& b : measured) all.push_back(*b);
      return all;
    }
  };

  void measure(const plan::Lowered& few, Walked& walked) const {
    for_each_index(problem_.ranks(), [&](int64_t r) {
      std::optional<int64_t>& measured = walked.measured[r];
      if (!measured) measured = problem_.measured_bytes(few, static_cast<int>(r));
    });
  }

  // Walks those that are not known with all that rows may do; returns those that need more than the budget. If
  // weight gradients run apart, a rank's concurrent work depends on how long the others take: then none is known.
  std::vector<int> walk(const plan::Lowered& lowered, Walked& walked) const {
    if (problem_.ranks_lean_on_each_other()) std::fill(walked.keeps.begin(), walked.keeps.end(), 0);
    for_each_index(problem_.ranks(), [&](int64_t r) {
      char& keeps = walked.keeps[r];
      if (keeps == 0) keeps = problem_.keeps_to(lowered, static_cast<int>(r), problem_.budget_bytes()) ? 1 : 0;
    });
    std::vector<int> over;
    for (int r = 0; r < problem_.ranks(); ++r) {
      if (walked.keeps[r] == 0) over.push_back(r);
    }
    return over;
  }

  // The measured candidate whose fullest rank takes least: a refusal names it.
  struct Least {
    StateResidencies residencies;
    DroppedValues given;
    int64_t bytes = std::numeric_limits<int64_t>::max();
  };
  // `worth`: it may take so many times the least so far.
  void note_least(const Candidate& c, const Walked& walked, double worth = 1) {
    const std::vector<int64_t> bytes = walked.bytes();
    const int64_t most = *std::max_element(bytes.begin(), bytes.end());
    if (static_cast<double>(most) < worth * static_cast<double>(least_.bytes))
      least_ = {c.residencies, given(c), most};
  }

  std::optional<Verified> verify(Candidate c) {
    Walked walked(problem_.ranks());
    std::vector<double> most(static_cast<size_t>(problem_.ranks()), budget());
    std::vector<bool> exhausted(dropper_.families().size(), false);
    for (int round = 0; round < kBudgetRounds; ++round) {
      measure(*lowered(c, Extent::few), walked);
      note_least(c, walked);
      std::vector<int> over;
      for (int r = 0; r < problem_.ranks(); ++r) {
        const auto at = static_cast<size_t>(r);
        const auto bytes = static_cast<double>(*walked.measured[at]);
        estimated_->learn(c, r, bytes, c);
        if (bytes > most[at]) over.push_back(r);
      }
      if (over.empty()) {
        const BudgetProblem::Lowered whole = lowered(c, Extent::whole);
        over = walk(*whole, walked);
        if (over.empty()) return Verified{c, walked.bytes(), problem_.times(*whole).step_us};
        for (const int r : over) {  // its values lie badly: as if it had less
          double& denied = most[r];
          denied = std::min(denied, static_cast<double>(*walked.measured[r])) - kMoreRoom * budget();
        }
      }
      std::vector<char> more(dropper_.families().size(), 0), gave(dropper_.families().size(), 0);
      for (const int r : over) more[estimated_->family_of(r)] = 1;
      for (size_t f = 0; f < more.size(); ++f) {
        if (more[f] != 0 && exhausted[f]) return std::nullopt;
      }
      for_each_index(static_cast<int64_t>(more.size()), [&](int64_t f) {
        const auto at = static_cast<size_t>(f);
        if (more[at] == 0) return;
        const size_t before = c.items[at].size();
        bool enough = true;
        for (const int r : dropper_.families()[at]) {
          const auto rank = static_cast<size_t>(r);
          enough = dropper_.drop(r, most[rank] - c.fixed[rank], c.items[at]) && enough;
        }
        gave[at] = static_cast<char>(enough && c.items[at].size() > before);
      });
      for (size_t f = 0; f < more.size(); ++f) {
        if (more[f] == 0) continue;
        for (const int r : dropper_.families()[f]) walked.forget(r);
        if (gave[f] != 0 && round + 2 < kBudgetRounds) continue;
        exhausted[f] = true;  // all that there is
        c.items[f].clear();
        for (const int r : dropper_.families()[f]) {
          most[r] = budget();
          const Items all = dropper_.everything(r);
          c.items[f].insert(c.items[f].end(), all.begin(), all.end());
        }
      }
    }
    return std::nullopt;
  }

  // Takes back what can be spared, where that holds: ranks where it does not stay as they were.
  Verified taken_back(Verified verified) const {
    constexpr double kAsShort = 1.0005, kSpare = 0.01;
    Candidate c = verified.candidate;
    for (int r = 0; r < problem_.ranks(); ++r)
      estimated_->learn(c, r, static_cast<double>(verified.rank_bytes[r]), verified.candidate);
    estimated_->keep_again(c, kSpare * budget());
    if (c.items == verified.candidate.items) return verified;
    Walked walked(problem_.ranks());
    const auto is_known = [&](int r) {
      return estimated_->items_of(c, r) == estimated_->items_of(verified.candidate, r);
    };
    for (int r = 0; r < problem_.ranks(); ++r) {
      if (!is_known(r)) continue;
      walked.measured[r] = verified.rank_bytes[r];
      walked.keeps[r] = 1;
    }
    measure(*lowered(c, Extent::few), walked);
    const std::vector<int> over = walk(*lowered(c, Extent::whole), walked);
    if (!over.empty() && problem_.ranks_lean_on_each_other()) return verified;
    for (const int r : over) c.items[estimated_->family_of(r)] = verified.candidate.items[estimated_->family_of(r)];
    std::vector<int64_t> bytes = walked.bytes();
    for (int r = 0; r < problem_.ranks(); ++r) {
      if (is_known(r)) bytes[r] = verified.rank_bytes[r];
    }
    const double step_us = problem_.times(*lowered(c, Extent::step)).step_us;
    return step_us <= kAsShort * verified.step_us ? Verified{c, bytes, step_us} : verified;
  }

  // A shorter step with which all layers drop the same few words, if there is one. Only the walk shows values that
  // lie badly beside each other; a knapsack does not.
  Verified or_all_alike(Verified verified) const {
    if (!problem_.open().recompute) return verified;
    for (const std::vector<std::string>& words : dropper_.few_words()) {
      Candidate c{verified.candidate.residencies, std::vector<Items>(dropper_.families().size()),
                  verified.candidate.fixed};
      bool near = true;  // worth a walk
      for (int r = 0; r < problem_.ranks(); ++r) {
        Items& items = c.items[estimated_->family_of(r)];
        const Items more = dropper_.all_of(r, words);
        items.insert(items.end(), more.begin(), more.end());
      }
      for (int r = 0; r < problem_.ranks(); ++r) {
        constexpr double kNear = 1.1;
        estimated_->learn(c, r, static_cast<double>(verified.rank_bytes[r]), verified.candidate);
        near = near && c.fixed[r] + dropper_.kept_bytes(r, estimated_->items_of(c, r)) < kNear * budget();
      }
      if (!near) continue;
      const double step_us = problem_.times(*lowered(c, Extent::step)).step_us;
      if (step_us >= verified.step_us) continue;
      Walked walked(problem_.ranks());
      measure(*lowered(c, Extent::few), walked);
      if (walk(*lowered(c, Extent::whole), walked).empty()) verified = {c, walked.bytes(), step_us};
    }
    return verified;
  }

  BudgetChoice explained(BudgetChoice choice, const Verified& v) const;
  [[noreturn]] void refuse();

  const BudgetProblem problem_;
  const ValueDropper& dropper_;
  const std::vector<std::vector<StateResidencies>> rows_;
  BudgetProblem::Lowered plain_;
  std::vector<double> plain_bytes_;
  std::optional<Candidates> estimated_;
  Least least_;
};

std::string size_text(double bytes) { return observe::bytes_text(bytes); }

std::string share_text(double part, double whole) {
  const double percent = whole > 0 ? 100 * part / whole : 0;
  return percent > 0 && percent < 0.05 ? "under 0.1 %" : fmt::format("{:.1f} %", percent);
}

const char* key_of(Item::Way way) { return way == Item::Way::again ? "memory.recompute" : "memory.offload"; }

BudgetChoice BudgetChooser::explained(BudgetChoice choice, const Verified& v) const {
  const Candidate& c = v.candidate;
  const int fullest = choice.fullest;
  const auto at = static_cast<size_t>(fullest);
  choice.step_us = v.step_us;
  choice.rank_bytes = v.rank_bytes;
  for (int64_t& bytes : choice.rank_bytes) bytes = std::min(bytes, problem_.budget_bytes());
  choice.bytes = *std::max_element(choice.rank_bytes.begin(), choice.rank_bytes.end());
  const DroppedValues given = this->given(c);
  const auto add = [&](const char* key, const std::vector<passes::OpGroup>& groups, bool open) {
    if (open && !groups.empty()) choice.settings.push_back(fmt::format("{}={}", key, passes::text_of(groups)));
  };
  add("memory.recompute", given.recompute, problem_.open().recompute);
  add("memory.offload", given.offload, problem_.open().offload);
  for (const std::string& setting : c.residencies.settings()) choice.settings.push_back(setting);

  // The rank's bytes, from what all of it would take to what it does.
  const Kept& all = dropper_.kept(fullest, {});
  const double kept = dropper_.kept_bytes(fullest, all), plain = plain_bytes_[at];
  for (const plan::RoleBytes& role :
       plan::persistent_by_role(plain_->program, problem_.first_rank(*plain_, fullest)))
    choice.waterfall.push_back({std::string(ir::name_of(role.role)), static_cast<double>(role.bytes)});
  choice.waterfall.push_back({"kept for the backward", kept});
  choice.waterfall.push_back({"at work, and gaps", plain - kept - problem_.persistent_bytes(*plain_, fullest)});
  double left = plain;
  const auto step = [&](const std::string& name, double bytes) {
    choice.waterfall.push_back({name, bytes, true});
    left += bytes;
  };
  for (const ResidencyPrice& price : estimated_->prices()) {
    if (std::find(c.residencies.of.begin(), c.residencies.of.end(), price.residency.of[0]) ==
        c.residencies.of.end())
      continue;
    const std::string name = price.residency.settings()[0];
    step(name, -price.frees_bytes[at]);
    choice.why.push_back(fmt::format("{}: {} of rank {}'s for {} of the step", name,
                                     size_text(price.frees_bytes[at]), fullest,
                                     share_text(std::max(0.0, price.costs_us), choice.free_us)));
  }
  // Words in the order in which the settings have them, their layers on this rank together.
  Items so_far;
  const Kept* now = &all;
  const Items left_items = estimated_->items_of(c, fullest);
  Items others = c.all();
  while (!others.empty()) {
    const Item word = others.front();
    Items own;
    const auto is_word = [&](const Item& i) { return i.same_word(word); };
    std::copy_if(left_items.begin(), left_items.end(), std::back_inserter(own), is_word);
    Items of_all;
    std::copy_if(others.begin(), others.end(), std::back_inserter(of_all), is_word);
    std::erase_if(others, is_word);
    so_far.insert(so_far.end(), own.begin(), own.end());
    const Kept& then = dropper_.kept(fullest, so_far);
    const double frees = dropper_.kept_bytes(fullest, *now) - dropper_.kept_bytes(fullest, then);
    const double costs_us = (then.price_us - now->price_us) * problem_.microbatches();
    now = &then;
    const DroppedValues words = in_short(of_all, problem_.layers());
    const std::string name = fmt::format(
        "{}={}", key_of(word.way), passes::text_of(word.way == Item::Way::again ? words.recompute : words.offload));
    if (own.empty()) {
      choice.why.push_back(name + ": of other ranks");
      continue;
    }
    step(name, -frees);
    choice.why.push_back(fmt::format("{}: {} of rank {}'s, for {} of its time{}", name, size_text(frees), fullest,
                                     share_text(std::max(0.0, costs_us), choice.free_us),
                                     word.above > 0 ? ", as often as rows are taken to pass the limit" : ""));
  }
  choice.lowerings = problem_.lowerings();
  choice.walks = problem_.walks();
  choice.worked_out = dropper_.worked_out();
  step("at work otherwise", static_cast<double>(choice.rank_bytes[at]) - left);
  return choice;
}

void BudgetChooser::refuse() {
  // With each residency all that can be given up, too, said in fewer words; then what the least takes exactly.
  constexpr double kShort = 1.03;
  for (const StateResidencies& residencies : estimated_->residencies_to_refuse_with()) {
    Candidate all{residencies, std::vector<Items>(dropper_.families().size()), {}};
    for (size_t f = 0; f < all.items.size(); ++f) {
      for (const int r : dropper_.families()[f]) {
        const Items more = dropper_.everything(r);
        all.items[f].insert(all.items[f].end(), more.begin(), more.end());
      }
    }
    Walked walked(problem_.ranks());
    measure(*lowered(all, Extent::few), walked);
    note_least(all, walked, kShort);
  }
  const DroppedValues& given = least_.given;
  const BudgetProblem::Lowered whole = problem_.lowered(least_.residencies, given);
  std::vector<int64_t> bytes(static_cast<size_t>(problem_.ranks()));
  for_each_index(problem_.ranks(),
                 [&](int64_t r) { bytes[r] = problem_.bound_bytes(*whole, static_cast<int>(r)); });
  std::vector<std::string> with;
  if (problem_.open().recompute)
    with.push_back(fmt::format("memory.recompute = \"{}\"", passes::text_of(given.recompute)));
  if (problem_.open().offload)
    with.push_back(fmt::format("memory.offload = \"{}\"", passes::text_of(given.offload)));
  for (const auto& [setting, value] : least_.residencies.of)
    with.push_back(fmt::format("{} = {}", setting->key, setting->text_of(value)));
  config_error(
      "memory.budget is {}, no choice of dropped values keeps every rank within it for any routing; the smallest "
      "budget that works is {} with {}",
      size_text(budget()), size_text(static_cast<double>(*std::max_element(bytes.begin(), bytes.end()))),
      fmt::join(with, ", "));
}

}  // namespace

std::string BudgetChoice::recompute() const {
  constexpr std::string_view key = "memory.recompute=";
  for (const std::string& setting : settings) {
    if (setting.starts_with(key)) return setting.substr(key.size());
  }
  return "";
}

std::optional<BudgetChoice> within_budget(const config::RunConfig& config, std::optional<bool> own_memory) {
  if (!config.plan.memory.has_budget()) return std::nullopt;
  const double begin_s = now_s(), begin_processor_s = processor_s();
  BudgetChooser chooser(config, own_memory.value_or(has_own_memory(config)));
  if (!chooser.anything_open()) return std::nullopt;
  BudgetChoice choice = chooser.choose();
  choice.seconds = now_s() - begin_s;
  choice.processor_seconds = processor_s() - begin_processor_s;
  return choice;
}

std::vector<std::string> budget_settings(const config::RunConfig& config,
                                         const std::function<void(const std::string& line)>& tell) {
  const std::optional<BudgetChoice> choice = within_budget(config);
  if (!choice) return {};
  for (const std::string& line : lines_of(*choice, config.plan.memory.budget_bytes)) tell(line);
  return choice->settings;
}

WithinBudget read_within_budget(const std::string& path, const std::vector<std::string>& set) {
  std::vector<std::string> all = set;
  WithinBudget read{config::read_run_config(path, all), {}};
  const auto add = [&](const std::vector<std::string>& settings) {
    if (settings.empty()) return;
    all.insert(all.end(), settings.begin(), settings.end());
    read.config = config::read_run_config(path, all);
  };
  const auto tell = [](const std::string& line) { say(stderr, "{}\n", line); };
  add(share_settings(read.config, {.memory = static_cast<int>(read.config.ranks())}, tell));
  add(residency_settings(read.config, tell));
  read.choice = within_budget(read.config);
  if (!read.choice) return read;
  for (const std::string& line : lines_of(*read.choice, read.config.plan.memory.budget_bytes)) tell(line);
  add(read.choice->settings);
  return read;
}

}  // namespace heddle::planner

#include "heddle/planner/budget/budget_problem.h"

#include <algorithm>
#include <cmath>

#include "heddle/plan/costs/account.h"
#include "heddle/plan/costs/durations.h"
#include "heddle/runtime/predict.h"
#include "heddle/schedule/apart.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

namespace {

// A pipeline is as full after a few rounds of its ranks as it will ever be.
plan::Plan shortened_plan(const plan::Plan& plan) {
  if (plan.order) return plan;
  const schedule::Schedule whole = plan::schedule_of(plan);
  const auto peaks = schedule::peaks_of(whole, schedule::even_bytes(whole.placement));
  const int pp = plan.mesh.pp;
  for (const int microbatches : {pp + (pp + 3) / 4, 2 * pp, 4 * pp, 8 * pp}) {
    plan::Plan few = plan;
    few.microbatches = microbatches;
    if (few.microbatches >= plan.microbatches) break;
    try {
      const schedule::Schedule made = plan::schedule_of(few);
      const auto of_few = schedule::peaks_of(made, schedule::even_bytes(made.placement));
      if (std::equal(peaks.begin(), peaks.end(), of_few.begin(), of_few.end(),
                     [](const auto& a, const auto& b) { return std::abs(a.bytes - b.bytes) < 1e-9; })) {
        return few;
      }
    } catch (const ConfigError&) {  // no such schedule of so few
    }
  }
  return plan;
}

// Its pass leaves the texts as those of recomputation and offload find them.
constexpr const char* kBefore = "reuse_lists";

}  // namespace

BudgetProblem::BudgetProblem(const config::RunConfig& config, bool own_memory)
    : config_(config),
      plan_(train::plan_of(config)),
      short_plan_(shortened_plan(plan_)),
      duration_us_(plan::nominal_durations(plan_.parallel.exchange, plan_.rates)),
      budget_bytes_(train::memory_limit_of(config)),
      layers_(static_cast<int>(config.model.num_hidden_layers + config.model.num_nextn_predict_layers)) {
  const plan::Memory& memory = config.plan.memory;
  open_.set = {memory.recompute, memory.offload};
  open_.recompute = memory.recompute.empty();
  open_.offload = own_memory && memory.offload.empty();
  ++lowerings_;
  const plan::Lowered before = plan::lower(config.model, plan_, kBefore);
  const schedule::Schedule order = plan::schedule_of(plan_);
  std::vector<KeptValues> texts;
  for (int r = 0; r < ranks(); ++r) {
    const ir::Listing& text = before.program.listings[r];
    lean_ = lean_ || schedule::defers_weight_gradients(order.order[r]);
    texts.emplace_back(text, order.order[r], order.placement.stages_of(r), duration_us_, plan_.rates.bytes_per_us,
                       runtime::crowding_of(text, train::room_of(config)));
  }
  dropper_.emplace(std::move(texts), order, open_);
}

BudgetProblem::Lowered BudgetProblem::lowered(const StateResidencies& residencies, const DroppedValues& given,
                                              Extent extent) const {
  if (extent == Extent::few && short_plan_.microbatches == plan_.microbatches) extent = Extent::whole;
  const std::string key =
      fmt::format("{};{};{};{}", static_cast<int>(extent), fmt::join(residencies.settings(), " "),
                  passes::text_of(given.recompute), passes::text_of(given.offload));
  const auto is_known = [&](const auto& known) { return known.first == key; };
  if (const auto at = std::find_if(last_.begin(), last_.end(), is_known); at != last_.end()) return at->second;
  plan::Plan plan = extent == Extent::few ? short_plan_ : plan_;
  residencies.set(plan);
  if (open_.recompute) plan.memory.recompute = given.recompute;
  if (open_.offload) plan.memory.offload = given.offload;
  if (extent == Extent::step) plan.evaluates = plan.predicts = false;
  ++lowerings_;
  constexpr size_t kKept = 8;  // these are a few hundred megabytes for the largest models
  last_.emplace_front(key, std::make_shared<const plan::Lowered>(plan::lower(config_.model, plan)));
  if (last_.size() > kKept) last_.pop_back();
  return last_.front().second;
}

int BudgetProblem::first_rank(const plan::Lowered& lowered, int rank) {
  const std::vector<int>& classes = lowered.program.class_of_rank;
  return static_cast<int>(std::find(classes.begin(), classes.end(), rank) - classes.begin());
}

int64_t BudgetProblem::measured_bytes(const plan::Lowered& lowered, int rank) const {
  ++walks_;
  return runtime::rough_arena_bytes(lowered.program, first_rank(lowered, rank), config_.device.backend,
                                    train::room_of(config_));
}

bool BudgetProblem::keeps_to(const plan::Lowered& lowered, int rank, int64_t bytes) const {
  ++walks_;
  return runtime::keeps_to(lowered.program, first_rank(lowered, rank), config_.device.backend, bytes,
                           train::room_of(config_));
}

int64_t BudgetProblem::bound_bytes(const plan::Lowered& lowered, int rank) const {
  constexpr int64_t kUnlimited = int64_t{1} << 50;
  return runtime::arena_bytes(lowered.program, first_rank(lowered, rank), config_.device.backend, kUnlimited, true,
                              train::room_of(config_));
}

double BudgetProblem::persistent_bytes(const plan::Lowered& lowered, int rank) const {
  double sum = 0;
  for (const plan::RoleBytes& role : plan::persistent_by_role(lowered.program, first_rank(lowered, rank)))
    sum += static_cast<double>(role.bytes);
  return sum;
}

simulate::BlockTimes BudgetProblem::times(const plan::Lowered& lowered) const {
  return simulate::time_blocks(lowered.program, duration_us_);
}

}  // namespace heddle::planner

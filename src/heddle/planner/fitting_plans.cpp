#include "heddle/planner/fitting_plans.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/base/parallel.h"
#include "heddle/config/run_config.h"
#include "heddle/planner/launch_settings.h"
#include "heddle/planner/rank_memory.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

namespace {

constexpr int kFittingRounds = 5;  // rounds of the search, each with less room
constexpr size_t kCounted = 3;     // plans of it that are counted; a step of each is simulated later
// A round closes in on the room that is left: never less than half at once, nor so little that it finds the same.
// Each closes in by more than the one before it, for where programs take more than predicted all of them do.
constexpr double kLeastRoom = 0.5, kMostRoom = 0.985;

// A step with more rows than balanced grows its arena; it may not grow beyond the limit.
bool holds_crowding(const plan::Lowered& lowered, std::string_view backend, const RankMemory& rank, double crowding,
                    int64_t limit_bytes, search::Ranked& plan) {
  if (crowding <= 1) return true;
  try {
    runtime::predict_memory(lowered.program, rank.rank, backend, rank.memory.reserved_bytes, crowding, limit_bytes);
    return true;
  } catch (const ir::OutOfMemory&) {
    const runtime::MemoryPrediction more =
        runtime::predict_memory(lowered.program, rank.rank, backend, 0, crowding);
    plan.live_bytes = static_cast<double>(more.peak_live_bytes);
    plan.reserved_bytes = static_cast<double>(more.reserved_bytes);
    return false;
  }
}

config::RunConfig limited_config(const search::Ranked& plan, double limit_bytes) {
  search::Launch launch = search::launch_of(plan);
  launch.memory_bytes = limit_bytes;
  return config_of(launch);
}

// A pipeline is as full after a few rounds of its ranks as it will ever be: where the schedule allows, only as many
// microbatches as that.
config::RunConfig shortened(config::RunConfig config) {
  const int64_t microbatches = config.microbatches(), few = 4 * config.degrees().pp;
  if (microbatches > few && microbatches % few == 0)
    config.train.global_batch = config.train.global_batch / (microbatches / few);
  else if (microbatches > few)
    config.train.global_batch = config.train.global_batch / microbatches * few;
  return config;
}

// The program's memory with room to spare, in a shorter step: close to what it is given, and soon known.
bool seems_to_fit(search::Ranked& plan, double limit_bytes) {
  const config::RunConfig whole = limited_config(plan, limit_bytes);
  plan::Plan of = train::plan_of(shortened(whole));
  plan::Lowered lowered;
  try {
    lowered = plan::lower(whole.model, of);
  } catch (const ConfigError&) {  // no schedule of so few microbatches
    of = train::plan_of(whole);
    lowered = plan::lower(whole.model, of);
  }
  std::vector<runtime::MemoryPrediction> ranks(static_cast<size_t>(of.mesh.pp));
  for_each_index(of.mesh.pp, [&](int64_t i) {
    const std::vector<int>& classes = lowered.program.class_of_rank;
    const auto rank = std::find(classes.begin(), classes.end(), static_cast<int>(i)) - classes.begin();
    ranks[i] = runtime::predict_memory(lowered.program, static_cast<int>(rank), whole.device.backend, 0,
                                       plan.job.memory_imbalance);
  });
  plan.live_bytes = plan.reserved_bytes = 0;
  for (const runtime::MemoryPrediction& m : ranks) {
    // Values copied to the host, and gathered weights, free their place late: where there is room the arena grows
    // meanwhile.
    const bool late = m.host_reserved_bytes > 0 || of.parallel.shard != passes::Shard::state;
    const auto needed = static_cast<double>(late ? m.peak_live_bytes : m.reserved_bytes);
    plan.live_bytes = std::max(plan.live_bytes, static_cast<double>(m.peak_live_bytes));
    plan.reserved_bytes = std::max(plan.reserved_bytes, needed);
  }
  return plan.reserved_bytes <= limit_bytes;
}

bool runs(const search::Ranked& plan) { return refusals_of(search::launch_of(plan)).empty(); }

std::string said(const search::Ranked& plan, double limit_bytes) {
  const plan::Degrees& l = plan.job.mesh;
  return fmt::format("{} with tp {} pp {} ep {}, whose program takes {:.1f} GiB of {:.1f}", plan.schedule, l.tp,
                     l.pp, l.ep, plan.reserved_bytes / (1 << 30), limit_bytes / (1 << 30));
}

// Counts plans from the first on, until as many seem to fit as are to be simulated, and leaves out those that
// don't; how many are left of the counted. `known`: so many of the first were counted and fit.
int count_by_shorter_steps(std::vector<search::Ranked>& plans, size_t known, double limit_bytes) {
  size_t fitting = known;
  for (size_t counted = known; fitting < plans.size() && counted < kCounted; ++counted) {
    if (seems_to_fit(plans[fitting], limit_bytes))
      ++fitting;
    else
      plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(fitting));
  }
  return static_cast<int>(fitting);
}

}  // namespace

bool count_program(search::Ranked& plan, double limit_bytes) {
  const config::RunConfig config = limited_config(plan, limit_bytes);
  const plan::Plan of = train::plan_of(config);
  const plan::Lowered lowered = plan::lower(config.model, of);
  const std::string& backend = config.device.backend;
  const int64_t limit = config.device.memory_bytes;
  const std::vector<RankMemory> ranks = memory_of_ranks(of, lowered, backend, limit);
  const RankMemory& fullest = fullest_of(ranks);
  plan.live_bytes = static_cast<double>(fullest.memory.peak_live_bytes);
  plan.reserved_bytes = static_cast<double>(fullest.memory.reserved_bytes);
  return std::all_of(ranks.begin(), ranks.end(), [](const RankMemory& r) { return r.fits; }) &&
         holds_crowding(lowered, backend, fullest, plan.job.memory_imbalance, limit, plan);
}

search::Answer fitting_plans(const search::Query& query,
                             const std::function<search::Answer(const search::Query&)>& search,
                             const OrderPlans& order) {
  const double limit = query.memory_bytes > 0 ? query.memory_bytes : search::usable_bytes(query.space.job.device);
  search::Query asked = query;
  asked.memory_bytes = limit;
  search::Answer answer;
  std::string misfit;
  for (int round = 0;; ++round) {
    const double estimate_s = answer.estimate_s, exact_s = answer.exact_s;
    answer = search(asked);
    answer.estimate_s += estimate_s;
    answer.exact_s += exact_s;
    answer.memory_bytes = limit;
    std::vector<search::Ranked>& plans = answer.top;
    std::erase_if(plans, [](const search::Ranked& plan) { return !runs(plan); });
    if (plans.empty()) break;
    const bool last = round + 1 == kFittingRounds || answer.stopped;
    if (seems_to_fit(plans.front(), limit) && order(answer, count_by_shorter_steps(plans, 1, limit))) break;
    if (misfit.empty()) misfit = said(plans.front(), limit);
    if (!last) {
      asked.memory_bytes *=
          std::clamp(limit / plans.front().reserved_bytes, kLeastRoom, std::pow(kMostRoom, round + 1));
      continue;
    }
    // The first that fits of those that the last round has found.
    plans.erase(plans.begin());
    int counted = count_by_shorter_steps(plans, 0, limit);
    for (; counted > 0 && !order(answer, counted); --counted) plans.erase(plans.begin());
    if (counted == 0) plans.clear();
    break;
  }
  if (answer.top.empty() && !misfit.empty()) answer.misfit = misfit;
  return answer;
}

}  // namespace heddle::planner

#include "heddle/search/search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/parallel.h"
#include "heddle/search/plans/estimator.h"
#include "heddle/search/plans/search_task.h"
#include "heddle/search/stage_keeping.h"

namespace heddle::search {

namespace {

/// Schedules that several plans share.
class Schedules {
 public:
  /// Null where the generator refuses to make it: figures that were gone on with don't show every refusal.
  std::shared_ptr<const PreparedSchedule> of(const Job& job) {
    const std::string key = PreparedSchedule::key(job);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = made_.find(key); found != made_.end()) return found->second;
    }
    std::shared_ptr<const PreparedSchedule> made;
    try {
      made = std::make_shared<const PreparedSchedule>(job);
    } catch (const ConfigError&) {
    }
    const std::lock_guard lock(mutex_);
    return made_.emplace(key, std::move(made)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const PreparedSchedule>> made_;
};

/// Fills the figures that follow from the exact step.
void rate(Ranked& r, const Behaviour& behaviour) {
  r.schedule = r.job.pipeline->name();
  r.estimate = estimate(r.job, behaviour);
  r.tokens_per_s_per_device = tokens_per_s_per_device(r.job, r.exact.step_s);
  r.model_flops_utilization = model_flops_utilization(r.job, r.exact.step_s);
}

/// The plan's step for a job that differs in nothing of its schedule.
Exact exact_as(const Ranked& r, const Job& job, const Behaviour& behaviour, const PreparedSchedule& schedule) {
  if (r.by_stage.empty()) return exact_of(job, behaviour, schedule);
  std::vector<Keeping> keeping;
  for (const StageChoice& choice : r.by_stage) keeping.push_back(choice.keeping);
  return exact_by_stage(job, behaviour, schedule, keeping, r.exact.layers);
}

/// The plan with the fastest of its choices whose exact peak fits.
std::optional<Ranked> time_exactly(const Task& task, const Candidate& plan, Estimator& estimator,
                                   Schedules& schedules) {
  Ranked r;
  r.job = job_of(task, plan);
  const std::shared_ptr<const PreparedSchedule> schedule = schedules.of(r.job);
  if (!schedule) return std::nullopt;
  for (const bool all : {false, true}) {
    if (!all && task.lowered() == nullptr) continue;  // closed forms cost nothing
    const Job job = job_of(task, plan);
    for (const Choice& choice : estimator.choices(job, task.most_exact_bytes(), all)) {
      const RecomputeChoice& recompute = task.recompute[static_cast<size_t>(choice.recompute)];
      r.job.recompute = recompute.recompute;
      r.job.software.offload_activations = choice.offload;
      r.job.residency = task.residencies[choice.residency];
      r.job.sharding = task.shardings[choice.sharding];
      std::optional<Exact> exact = exact_within(r.job, task.query.behaviour, *schedule, task.memory_bytes);
      if (!exact) continue;
      r.exact = *std::move(exact);
      r.recompute = recompute.name;
      rate(r, task.query.behaviour);
      return r;
    }
  }
  return std::nullopt;
}

/// The plan with a choice for each stage, one residency and one sharding, where that could be faster than `known`
/// and than `slowest_s`; whether it was tried.
bool time_by_stage(const Task& task, const Candidate& plan, size_t residency, size_t sharding, Schedules& schedules,
                   double slowest_s, std::optional<Ranked>& known) {
  Ranked r;
  r.job = job_of(task, plan);
  r.job.residency = task.residencies[residency];
  r.job.sharding = task.shardings[sharding];
  if (!sharding_goes(r.job)) return false;
  std::vector<StageChoice> choices;
  std::vector<Keeping> ways;
  for (const RecomputeChoice& recompute : task.recompute)
    for (const bool offload : task.offload)
      if (task.allows(r.job.pipeline, recompute.recompute, offload)) {
        choices.push_back({recompute.name, {recompute.recompute, offload}});
        ways.push_back(choices.back().keeping);
      }
  const std::shared_ptr<const PreparedSchedule> schedule = schedules.of(r.job);
  if (!schedule || schedule->schedule.placement.stages < 2 || ways.size() < 2) return false;
  const double limit_s = known ? std::min(slowest_s, known->exact.step_s) : slowest_s;
  const Behaviour& behaviour = task.query.behaviour;
  if (std::isfinite(limit_s) && unbounded_step_s(r.job, behaviour, *schedule, ways) >= limit_s) return false;
  std::optional<KeptByStage> kept = keep_by_stage(r.job, behaviour, *schedule, ways, task.memory_bytes);
  if (!kept) return true;
  const StageCosts costs(r.job, behaviour, ways);
  const int least = *std::min_element(kept->way_of_stage.begin(), kept->way_of_stage.end(),
                                      [&](int a, int b) { return costs.kept_bytes(a) < costs.kept_bytes(b); });
  const StageChoice& heaviest = choices[static_cast<size_t>(least)];
  r.recompute = heaviest.recompute;
  r.job.recompute = heaviest.keeping.recompute;
  r.job.software.offload_activations = heaviest.keeping.offload;
  // The part beside the pipeline depends on the job as it is printed, as for a later timing of the plan.
  std::vector<Keeping> keeping;
  for (const int way : kept->way_of_stage) keeping.push_back(ways[static_cast<size_t>(way)]);
  r.exact = exact_by_stage(r.job, behaviour, *schedule, keeping, kept->exact.layers);
  if (known && r.exact.step_s >= known->exact.step_s) return true;
  for (const int way : kept->way_of_stage) r.by_stage.push_back(choices[static_cast<size_t>(way)]);
  if (std::ranges::adjacent_find(kept->way_of_stage, std::not_equal_to{}) == kept->way_of_stage.end())
    r.by_stage.clear();
  rate(r, behaviour);
  known = std::move(r);
  return true;
}

constexpr size_t kFirstPart = 16;  // families

/// The slowest of so many plans; infinite where there are fewer.
double slowest_wanted_s(const std::vector<std::unique_ptr<Estimator>>& estimators, size_t most) {
  std::vector<double> steps_s;
  for (const auto& each : estimators)
    for (const Candidate& plan : each->best.plans()) steps_s.push_back(plan.best.step_s);
  if (steps_s.size() < most) return std::numeric_limits<double>::infinity();
  const auto last = steps_s.begin() + static_cast<std::ptrdiff_t>(most) - 1;
  std::nth_element(steps_s.begin(), last, steps_s.end());
  return *last;
}

/// The fastest, no two with the same layout and schedule.
std::vector<size_t> best_of(const std::vector<std::optional<Ranked>>& timed, int most) {
  std::vector<size_t> order, best;
  for (size_t i = 0; i < timed.size(); ++i)
    if (timed[i]) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return timed[a]->exact.step_s < timed[b]->exact.step_s; });
  for (const size_t i : order) {
    if (best.size() == static_cast<size_t>(most)) break;
    const bool known = std::any_of(best.begin(), best.end(), [&](size_t other) {
      return timed[other]->job.mesh == timed[i]->job.mesh && timed[other]->job.chunks == timed[i]->job.chunks &&
             timed[other]->schedule == timed[i]->schedule;
    });
    if (!known) best.push_back(i);
  }
  return best;
}

}  // namespace

Answer search(const Query& query, const SearchProgress& progress, const std::function<bool()>& stop) {
  const Task task = task_of(query);
  Answer answer;
  answer.memory_bytes = task.memory_bytes;
  answer.threads = query.threads > 0 ? query.threads : hardware_threads();
  const auto asked_to_stop = [&] { return stop && stop(); };

  double began = now_s();
  std::vector<std::unique_ptr<Estimator>> estimators;
  for (int t = 0; t < answer.threads; ++t) estimators.push_back(std::make_unique<Estimator>(task));
  std::atomic<size_t> next{0}, done{0};
  std::atomic<uint64_t> plans{0};
  std::mutex telling;
  const auto estimate_until = [&](size_t end, int t) {
    Estimator& estimator = *estimators[t];
    for (size_t i = next++; i < end && !asked_to_stop(); i = next++) {
      const uint64_t before = estimator.counts.plans;
      estimator.family(i);
      plans += estimator.counts.plans - before;
      const size_t finished = ++done;
      if (progress && telling.try_lock()) {
        const std::lock_guard lock(telling, std::adopt_lock);
        progress(finished, task.families.size(), plans);
      }
    }
  };
  // After each part all threads know what is too slow, so that the answer does not depend on their number.
  for (size_t part = kFirstPart, begin = 0; begin < task.families.size(); begin += part, part *= 2) {
    next = begin;
    on_threads(answer.threads, [&](int t) { estimate_until(std::min(begin + part, task.families.size()), t); });
    const double slowest_s = slowest_wanted_s(estimators, static_cast<size_t>(query.short_list));
    for (const auto& each : estimators) each->slowest_s = slowest_s;
  }
  std::vector<Candidate> list;
  std::optional<Candidate> least;
  for (const auto& each : estimators) {
    list.insert(list.end(), each->best.plans().begin(), each->best.plans().end());
    answer.plans += each->counts.plans;
    answer.fitting += each->counts.fitting;
    answer.passed_over += each->counts.passed_over;
    answer.layouts += each->counts.layouts;
    if (each->least &&
        (!least || std::tuple(each->least->best.peak_bytes, each->least->family, each->least->serial) <
                       std::tuple(least->best.peak_bytes, least->family, least->serial)))
      least = each->least;
  }
  std::sort(list.begin(), list.end(), before);
  if (list.size() > static_cast<size_t>(query.short_list)) list.resize(static_cast<size_t>(query.short_list));
  answer.estimate_s = now_s() - began;

  began = now_s();
  std::vector<std::optional<Ranked>> timed(list.size());
  Schedules schedules;
  next = 0;
  std::atomic<uint64_t> timings{0};
  std::atomic<bool> found{false};
  const auto enough = [&] { return query.any && found; };
  on_threads(answer.threads, [&](int t) {
    Estimator& estimator = *estimators[t];
    for (size_t i = next++; i < list.size() && !enough(); i = next++) {
      // Asked to stop, the very best are still timed.
      if (asked_to_stop() && i >= static_cast<size_t>(query.top)) break;
      timed[i] = time_exactly(task, list[i], estimator, schedules);
      if (timed[i]) found = true;
      ++timings;
    }
  });
  if (!task.query.space.restriction.alike() && !asked_to_stop() && !enough()) {
    const std::vector<size_t> best = best_of(timed, query.top);
    const double slowest_s = best.size() < static_cast<size_t>(query.top) ? std::numeric_limits<double>::infinity()
                                                                          : timed[best.back()]->exact.step_s;
    std::atomic<uint64_t> by_stage{0};
    next = 0;
    on_threads(answer.threads, [&](int) {
      for (size_t i = next++; i < list.size() && !asked_to_stop() && !enough(); i = next++) {
        for (const auto& [residency, sharding] :
             std::set<std::pair<size_t, size_t>>{{0, 0}, {list[i].best.residency, list[i].best.sharding}})
          if (time_by_stage(task, list[i], residency, sharding, schedules, slowest_s, timed[i])) ++by_stage;
        if (timed[i]) found = true;
      }
    });
    answer.by_stage = by_stage;
  }
  for (const size_t i : best_of(timed, query.top)) {
    Ranked& r = *timed[i];
    Job unlucky = r.job;
    task.set_routing(unlucky, 0.99);
    r.p99_step_s = exact_as(r, unlucky, query.behaviour, *schedules.of(unlucky)).step_s;
    answer.top.push_back(std::move(r));
  }
  answer.timed = timings;
  answer.exact_s = now_s() - began;
  answer.stopped = asked_to_stop();
  if (answer.top.empty() && least) answer.misfit = misfit_text(task, *least);
  return answer;
}

Ranked timed_anew(Ranked plan, const Job& job, const Behaviour& behaviour) {
  const PreparedSchedule schedule(job);
  plan.job = job;
  plan.exact = exact_as(plan, job, behaviour, schedule);
  Job unlucky = job;
  unlucky.imbalance = job.memory_imbalance;
  plan.p99_step_s = exact_as(plan, unlucky, behaviour, schedule).step_s;
  plan.simulated_step_s = plan.live_bytes = plan.reserved_bytes = 0;
  rate(plan, behaviour);
  return plan;
}

Launch launch_of(const Ranked& plan) {
  Launch launch = launch_of(plan.job, plan.exact.layers);
  for (size_t s = 0; s < plan.by_stage.size(); ++s) {
    const Keeping& keeping = plan.by_stage[s].keeping;
    launch.by_stage.push_back({plan.exact.layers[s], keeping.recompute, keeping.offload});
  }
  return launch;
}

}  // namespace heddle::search

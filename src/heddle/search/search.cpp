#include "heddle/search/search.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/parallel.h"
#include "heddle/search/block_work.h"
#include "heddle/search/lowered_blocks.h"
#include "heddle/search/stage_keeping.h"

namespace heddle::search {

namespace {

constexpr double kUsable = 0.92;
// The estimate's memory is the fullest rank's by closed form; exact peaks may be a little lower.
constexpr double kMemorySlack = 1.05;
// Heddle's layers are lowered for all plans where that makes at most so many texts. Else closed forms choose the
// short list, with more room for what they know less of, and its plans alone are priced by lowering.
constexpr size_t kMostTexts = 2000;
constexpr double kUnloweredSlack = 1.25;

struct Choice {
  int recompute = 0;  // index
  bool offload = false;
  double step_s = 0, peak_bytes = 0;  // estimated
};

/// One layout and schedule, and the fastest choice with it.
struct Candidate {
  size_t family = 0;
  int serial = 0;  // in the family
  int pp = 1, vpp = 1, dp = 1;
  Pipeline pipeline = one_f_one_b();
  Choice best;
};

bool before(const Candidate& a, const Candidate& b) {
  return std::tuple(a.best.step_s, a.family, a.serial) < std::tuple(b.best.step_s, b.family, b.serial);
}

/// The best few in whatever order they come.
class ShortList {
 public:
  explicit ShortList(size_t most) : most_(most) {}
  void add(const Candidate& plan) {
    if (plans_.size() == most_ && !before(plan, plans_.front())) return;
    if (plans_.size() == most_) {
      std::pop_heap(plans_.begin(), plans_.end(), before);
      plans_.pop_back();
    }
    plans_.push_back(plan);
    std::push_heap(plans_.begin(), plans_.end(), before);
  }
  const std::vector<Candidate>& plans() const { return plans_; }

 private:
  size_t most_;
  std::vector<Candidate> plans_;
};

struct Counts {
  uint64_t plans = 0, fitting = 0, layouts = 0;
};

/// What all threads read.
struct Task {
  const Query& query;
  std::vector<Family> families;
  std::vector<RecomputeChoice> recompute;
  std::vector<bool> offload;
  model::Parameters parameters;
  double memory_bytes = 0;

  const LoweredBlocks* lowered() const { return query.space.job.software.lowered; }
  bool lowers_all() const { return families.size() * recompute.size() <= kMostTexts; }
  /// Of the estimates that make the short list.
  double most_bytes() const {
    return memory_bytes * (lowered() != nullptr && !lowers_all() ? kUnloweredSlack : kMemorySlack);
  }

  void set_routing(Job& job, double quantile) const {
    const Routing& routing = query.space.routing;
    const int64_t experts = job.shape.moe_blocks() > 0 ? job.shape.moe.count : 0;
    job.imbalance = routing.fullest(quantile, experts, job.layout.ep);
    job.memory_imbalance = routing.fullest(0.99, experts, job.layout.ep);
  }
  // Computing the exchange again inside a pair is what no such schedule does.
  bool allows(Pipeline pipeline, const model::Recompute& r) const {
    return !pipeline->pairs() || (!r.full && !r.experts);
  }
};

/// Estimates one thread's families.
class Estimator {
 public:
  explicit Estimator(const Task& task)
      : best(static_cast<size_t>(task.query.short_list)),
        task_(task),
        job_(task.query.space.job),
        known_(3 * task.recompute.size() * 2) {}

  void family(size_t index) {
    family_ = index;
    serial_ = 0;
    const Family& family = task_.families[index];
    Layout& l = job_.layout;
    l.tp = family.tp, l.cp = family.cp, l.ep = family.ep, l.etp = family.etp;
    job_.microbatch = family.microbatch;
    if (task_.lowered() != nullptr && !task_.lowered()->refusal(job_).empty()) return;
    if (!task_.lowers_all()) job_.software.lowered = nullptr;
    task_.set_routing(job_, 0.5);
    forget();
    for_each_layout(task_.query.space, family, job_, [&] { layout(); });
  }

  /// Choices of the job's layout by estimated time, of which none has more than `most_bytes`: all of them, or none
  /// but to keep everything where that fits.
  const std::vector<Choice>& choices(const Job& job, double most_bytes, bool all) {
    job_ = job;
    forget();
    weigh(most_bytes, all);
    std::stable_sort(fitting_.begin(), fitting_.end(),
                     [](const Choice& a, const Choice& b) { return a.step_s < b.step_s; });
    return fitting_;
  }

  ShortList best;
  Counts counts;
  std::optional<Candidate> least;  // memory, of what doesn't fit

 private:
  void forget() {
    for (auto& each : known_) each.reset();
    for (auto& each : prices_) each.reset();
    priced_dp_ = 0;
  }

  // Blocks cost the same whatever the stages, unless weights are gathered around them from data ranks.
  const Layers& layers_now(size_t recompute) {
    if (job_.software.sharded_weights && priced_dp_ != job_.layout.dp) {
      forget();
      priced_dp_ = job_.layout.dp;
    }
    const Pipeline p = job_.pipeline;
    const size_t kind = !p->pairs() ? 0 : p->outline().hides_exchange ? 2 : 1;  // of hiding the exchange
    std::optional<Layers>& known =
        known_[(kind * task_.recompute.size() + recompute) * 2 + (job_.software.offload_activations ? 1 : 0)];
    if (!known) {
      std::optional<Prices>& prices = prices_[kind];
      if (!prices || prices->saved) prices = prices_of(job_, task_.parameters, task_.query.behaviour);
      known = layers_of(job_, *prices, task_.query.behaviour);
    }
    return *known;
  }

  void weigh(double most_bytes, bool all) {
    fitting_.clear();
    lightest_.peak_bytes = 0;
    for (size_t r = 0; r < task_.recompute.size(); ++r) {
      if (!task_.allows(job_.pipeline, task_.recompute[r].recompute)) continue;
      for (const bool offload : task_.offload) {
        job_.recompute = task_.recompute[r].recompute;
        job_.software.offload_activations = offload;
        const Layers& layers = layers_now(r);
        Estimate e;
        estimate_memory(job_, memory_parts(job_, task_.parameters, layers), e);
        Choice choice{static_cast<int>(r), offload, 0, e.peak_bytes};
        ++counts.plans;
        if (e.peak_bytes > most_bytes) {
          if (lightest_.peak_bytes == 0 || e.peak_bytes < lightest_.peak_bytes) lightest_ = choice;
          continue;
        }
        estimate_time(job_, task_.parameters, layers, task_.query.behaviour, e);
        choice.step_s = e.step_s;
        fitting_.push_back(choice);
        ++counts.fitting;
        if (!all && !offload && job_.recompute == model::Recompute{}) return;
      }
    }
  }

  void layout() {
    ++counts.layouts;
    // Whatever is computed again or sent away takes time: where everything can be kept, nothing else is lowered.
    weigh(task_.most_bytes(), job_.software.lowered == nullptr);
    Candidate plan{family_, serial_++, job_.layout.pp, job_.layout.vpp, job_.layout.dp, job_.pipeline, lightest_};
    if (fitting_.empty()) {
      if (lightest_.peak_bytes > 0 &&
          (!least || std::tuple(plan.best.peak_bytes, plan.family, plan.serial) <
                         std::tuple(least->best.peak_bytes, least->family, least->serial)))
        least = plan;
      return;
    }
    plan.best = *std::min_element(fitting_.begin(), fitting_.end(),
                                  [](const Choice& a, const Choice& b) { return a.step_s < b.step_s; });
    best.add(plan);
  }

  const Task& task_;
  Job job_;
  std::vector<std::optional<Layers>> known_;  // by kind of hiding, recomputation, offload
  std::optional<Prices> prices_[3];
  int priced_dp_ = 0;
  std::vector<Choice> fitting_;
  Choice lightest_;  // that doesn't fit
  size_t family_ = 0;
  int serial_ = 0;
};

Job job_of(const Task& task, const Candidate& plan) {
  Job j = task.query.space.job;
  const Family& f = task.families[plan.family];
  j.layout = {task.query.space.devices, f.tp, plan.pp, plan.vpp, f.cp, plan.dp, f.ep, f.etp};
  j.microbatch = f.microbatch;
  j.pipeline = plan.pipeline;
  j.software.overlap_exchange = plan.pipeline->pairs();
  j.software.even_stages = task.query.space.restriction.even();
  task.set_routing(j, 0.5);
  return j;
}

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

/// What follows from the exact step.
void rate(const Task& task, Ranked& r) {
  r.schedule = r.job.pipeline->name();
  r.estimate = estimate(r.job, task.query.behaviour);
  r.tokens_per_s_per_device = tokens_per_s_per_device(r.job, r.exact.step_s);
  r.model_flops_utilization = model_flops_utilization(r.job, r.exact.step_s);
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
    for (const Choice& choice : estimator.choices(job, task.memory_bytes * kMemorySlack, all)) {
      const RecomputeChoice& recompute = task.recompute[static_cast<size_t>(choice.recompute)];
      r.job.recompute = recompute.recompute;
      r.job.software.offload_activations = choice.offload;
      r.exact = exact_of(r.job, task.query.behaviour, *schedule);
      if (r.exact.peak_bytes > task.memory_bytes) continue;
      r.recompute = recompute.name;
      rate(task, r);
      return r;
    }
  }
  return std::nullopt;
}

/// The plan with a choice for each stage, where that could be faster than `known` and than `slowest_s`; whether it
/// was tried.
bool time_by_stage(const Task& task, const Candidate& plan, Schedules& schedules, double slowest_s,
                   std::optional<Ranked>& known) {
  Ranked r;
  r.job = job_of(task, plan);
  std::vector<StageChoice> choices;
  std::vector<Keeping> ways;
  for (const RecomputeChoice& recompute : task.recompute)
    for (const bool offload : task.offload)
      if (task.allows(r.job.pipeline, recompute.recompute)) {
        choices.push_back({recompute.name, {recompute.recompute, offload}});
        ways.push_back(choices.back().keeping);
      }
  const std::shared_ptr<const PreparedSchedule> schedule = schedules.of(r.job);
  if (!schedule || schedule->schedule.placement.stages < 2 || ways.size() < 2) return false;
  const double limit_s = known ? std::min(slowest_s, known->exact.step_s) : slowest_s;
  const Behaviour& behaviour = task.query.behaviour;
  if (unbounded_step_s(r.job, behaviour, *schedule, ways) >= limit_s) return false;
  std::optional<KeptByStage> kept = keep_by_stage(r.job, behaviour, *schedule, ways, task.memory_bytes);
  if (!kept) return true;
  const StageCosts costs(r.job, behaviour, ways);
  const int least = *std::min_element(kept->way_of_stage.begin(), kept->way_of_stage.end(),
                                      [&](int a, int b) { return costs.kept_bytes(a) < costs.kept_bytes(b); });
  const StageChoice& heaviest = choices[static_cast<size_t>(least)];
  r.recompute = heaviest.recompute;
  r.job.recompute = heaviest.keeping.recompute;
  r.job.software.offload_activations = heaviest.keeping.offload;
  // What stands beside the pipeline goes by the job as it is told, as for whoever times the plan again.
  std::vector<Keeping> keeping;
  for (const int way : kept->way_of_stage) keeping.push_back(ways[static_cast<size_t>(way)]);
  r.exact = exact_by_stage(r.job, behaviour, *schedule, keeping, kept->exact.layers);
  if (known && r.exact.step_s >= known->exact.step_s) return true;
  for (const int way : kept->way_of_stage) r.by_stage.push_back(choices[static_cast<size_t>(way)]);
  if (std::ranges::adjacent_find(kept->way_of_stage, std::not_equal_to{}) == kept->way_of_stage.end())
    r.by_stage.clear();
  rate(task, r);
  known = std::move(r);
  return true;
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
      return timed[other]->job.layout == timed[i]->job.layout && timed[other]->schedule == timed[i]->schedule;
    });
    if (!known) best.push_back(i);
  }
  return best;
}

Task task_of(const Query& query) {
  const Space& space = query.space;
  if (space.devices < 1 || space.devices > 1 << 20)
    config_error("search: {} devices, accepted 1 to {}", space.devices, 1 << 20);
  if (space.job.global_batch < 1 || space.job.global_batch > 1 << 24)
    config_error("search: a global batch of {}, accepted 1 to {}", space.job.global_batch, 1 << 24);
  if (!(space.job.sequence >= 1 && space.job.sequence <= 1e8))
    config_error("search: a sequence of {}, accepted 1 to 100000000", space.job.sequence);
  if (space.job.device.name.empty()) config_error("search: no device");
  if (const std::string wrong = model::check_shape(space.job.shape); !wrong.empty())
    config_error("search: the model's {}", wrong);
  if (query.top < 1 || query.short_list < query.top)
    config_error("search: top {} of {} timed exactly, accepted from 1 on", query.top, query.short_list);
  Task task{query, families(space), recompute_choices(space.job.shape), {}, model::parameters_of(space.job.shape),
            0};
  const Restriction& only = space.restriction;
  if (!only.recompute.empty())
    std::erase_if(task.recompute, [&](const RecomputeChoice& c) {
      return std::find(only.recompute.begin(), only.recompute.end(), c.name) == only.recompute.end();
    });
  if (task.recompute.empty())
    config_error("search: no recompute of {} suits {}", fmt::join(only.recompute, ", "), space.job.shape.name);
  for (const bool offload : {false, true})
    if (only.offload.empty() ||
        std::find(only.offload.begin(), only.offload.end(), offload ? 1 : 0) != only.offload.end())
      task.offload.push_back(offload);
  task.memory_bytes = query.memory_bytes > 0 ? query.memory_bytes : usable_bytes(space.job.device);
  return task;
}

std::string said(const Task& task, const Candidate& plan) {
  const Family& f = task.families[plan.family];
  return fmt::format(
      "{} with tp {} cp {} pp {} ep {} etp {}, microbatch {}, recomputing {}, needs {:.1f} GiB of {:.1f}",
      plan.pipeline->name(), f.tp, f.cp, plan.pp, f.ep, f.etp, f.microbatch,
      task.recompute[static_cast<size_t>(plan.best.recompute)].name, plan.best.peak_bytes / (1 << 30),
      task.memory_bytes / (1 << 30));
}

}  // namespace

double usable_bytes(const cost::Accelerator& device) { return kUsable * device.memory_bytes; }

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
  on_threads(answer.threads, [&](int t) {
    Estimator& estimator = *estimators[static_cast<size_t>(t)];
    for (size_t i = next++; i < task.families.size() && !asked_to_stop(); i = next++) {
      const uint64_t before = estimator.counts.plans;
      estimator.family(i);
      plans += estimator.counts.plans - before;
      const size_t finished = ++done;
      if (progress && telling.try_lock()) {
        const std::lock_guard lock(telling, std::adopt_lock);
        progress(finished, task.families.size(), plans);
      }
    }
  });
  std::vector<Candidate> list;
  std::optional<Candidate> least;
  for (const auto& each : estimators) {
    list.insert(list.end(), each->best.plans().begin(), each->best.plans().end());
    answer.plans += each->counts.plans;
    answer.fitting += each->counts.fitting;
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
  on_threads(answer.threads, [&](int t) {
    Estimator& estimator = *estimators[static_cast<size_t>(t)];
    for (size_t i = next++; i < list.size(); i = next++) {
      // Asked to stop, the very best are still timed.
      if (asked_to_stop() && i >= static_cast<size_t>(query.top)) break;
      timed[i] = time_exactly(task, list[i], estimator, schedules);
      ++timings;
    }
  });
  if (!task.query.space.restriction.alike() && !asked_to_stop()) {
    const std::vector<size_t> best = best_of(timed, query.top);
    const double slowest_s = best.size() < static_cast<size_t>(query.top) ? std::numeric_limits<double>::infinity()
                                                                          : timed[best.back()]->exact.step_s;
    std::atomic<uint64_t> by_stage{0};
    next = 0;
    on_threads(answer.threads, [&](int) {
      for (size_t i = next++; i < list.size() && !asked_to_stop(); i = next++)
        if (time_by_stage(task, list[i], schedules, slowest_s, timed[i])) ++by_stage;
    });
    answer.by_stage = by_stage;
  }
  for (const size_t i : best_of(timed, query.top)) {
    Ranked& r = *timed[i];
    Job unlucky = r.job;
    task.set_routing(unlucky, 0.99);
    const PreparedSchedule& schedule = *schedules.of(unlucky);
    std::vector<Keeping> keeping(r.by_stage.size());
    std::transform(r.by_stage.begin(), r.by_stage.end(), keeping.begin(),
                   [](const StageChoice& choice) { return choice.keeping; });
    r.p99_step_s = (keeping.empty() ? exact_of(unlucky, query.behaviour, schedule)
                                    : exact_by_stage(unlucky, query.behaviour, schedule, keeping, r.exact.layers))
                       .step_s;
    answer.top.push_back(std::move(r));
  }
  answer.timed = timings;
  answer.exact_s = now_s() - began;
  answer.stopped = asked_to_stop();
  if (answer.top.empty() && least) answer.misfit = said(task, *least);
  return answer;
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

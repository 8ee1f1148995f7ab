#include "heddle/search/plans/estimator.h"

#include <tuple>

#include "heddle/search/plans/context.h"
#include "heddle/search/plans/replicas.h"

namespace heddle::search {

namespace {

// Number of kinds of crossing from the host for a microbatch: nothing, weights, sums of gradients, both.
constexpr size_t kCrossings = 4;

}  // namespace

Estimator::Estimator(const Task& task)
    : best(static_cast<size_t>(task.query.short_list)),
      task_(task),
      job_(task.query.space.job),
      host_bytes_(usable_host_bytes(job_.device)),
      known_(2 * 3 * task.recompute.size() * 2 * kCrossings * task.shardings.size()) {}

void Estimator::family(size_t index) {
  family_ = index;
  serial_ = 0;
  const Family& family = task_.families[index];
  job_ = task_.query.space.job;
  plan::Degrees& l = job_.mesh;
  l.tp = family.tp, l.cp = family.cp, l.ep = family.ep, l.etp = family.etp;
  job_.microbatch = family.microbatch;
  if (task_.lowered() != nullptr && !task_.lowered()->refusal(job_).empty()) return;
  if (!task_.lowers_all()) job_.software.lowered = nullptr;
  task_.set_routing(job_, 0.5);
  choose_context(job_, task_.query.space.job, task_.query.behaviour, task_.query.space.restriction.context);
  for (std::optional<int>& known : replicas_) known.reset();
  forget();
  for_each_layout(task_.query.space, family, job_, [&] { layout(); });
}

// The value that shortens a step with the first choice of what is kept.
int Estimator::best_replicas() {
  const std::vector<int>& values = task_.replicas;
  if (job_.shape.n_routed_experts == 0 || job_.mesh.ep == 1 || values.size() == 1) return values.front();
  job_.recompute = task_.recompute.front().recompute;
  job_.software.offload_activations = task_.offload.front();
  job_.residency = task_.residencies.front();
  job_.sharding = task_.shardings.front();
  std::optional<int>& other = replicas_[job_.pipeline->pairs() ? 1 : 0];
  if (!other) other = cheapest_replicas(job_, task_.query.behaviour, {values.begin() + 1, values.end()});
  const auto step_s = [&](int replicas) {
    job_.exchange.replicas = replicas;
    return usually({}).step_s;
  };
  return step_s(*other) < step_s(values.front()) ? *other : values.front();
}

const std::vector<Choice>& Estimator::choices(const Job& job, double most_bytes, bool all) {
  job_ = job;
  forget();
  weigh(most_bytes, all, true);
  std::stable_sort(fitting_.begin(), fitting_.end(),
                   [](const Choice& a, const Choice& b) { return a.step_s < b.step_s; });
  return fitting_;
}

void Estimator::forget() {
  for (auto& each : known_) each.reset();
  for (auto& kinds : prices_)
    for (auto& each : kinds) each.reset();
  priced_dp_ = 0;
}

// Blocks cost the same whatever the stages, unless weights are gathered around them from data ranks.
const Layers& Estimator::layers_now(const Choice& choice) {
  if (job_.software.sharded_weights && priced_dp_ != job_.mesh.dp) {
    forget();
    priced_dp_ = job_.mesh.dp;
  }
  const Pipeline p = job_.pipeline;
  const size_t kind = !p->pairs() ? 0 : p->outline().hides_exchange ? 2 : 1;  // kind of hiding of the exchange
  const size_t copies = job_.exchange.replicas == task_.replicas.front() ? 0 : 1;
  const size_t place = (((copies * 3 + kind) * task_.recompute.size() + static_cast<size_t>(choice.recompute)) * 2 +
                        (job_.software.offload_activations ? 1 : 0)) *
                           kCrossings +
                       (job_.residency.weights.empty() ? 0 : 2) + (job_.residency.gradients.empty() ? 0 : 1);
  std::optional<Known>& known = known_[place * task_.shardings.size() + choice.sharding];
  const bool sharded = job_.sharding.shard != passes::Shard::state;
  if (!known || (sharded && known->dp != job_.mesh.dp)) {
    const Behaviour& behaviour = task_.query.behaviour;
    std::optional<Prices>& prices = prices_[copies][kind];
    if (!prices || prices->saved) prices = unsharded_prices_of(job_, task_.parameters, behaviour);
    if (sharded) {
      Prices own = *prices;
      add_sharding(job_, task_.parameters, behaviour, own);
      known = Known{layers_of(job_, own, behaviour), job_.mesh.dp};
    } else {
      known = Known{layers_of(job_, *prices, behaviour), job_.mesh.dp};
    }
  }
  return known->layers;
}

// `everywhere`: with each residency that fits. Otherwise with the first that fits of the usual one and, for each
// kind of crossing, those that leave least on the device, where it may come among the best. Homes of the state
// differ by little beside a step.
void Estimator::weigh(double most_bytes, bool all, bool everywhere) {
  fitting_.clear();
  lightest_.peak_bytes = 0;
  passed_over_ = false;
  for (size_t r = 0; r < task_.recompute.size(); ++r) {
    for (const bool offload : task_.offload) {
      if (!task_.allows(job_.pipeline, task_.recompute[r].recompute, offload)) continue;
      job_.recompute = task_.recompute[r].recompute;
      job_.software.offload_activations = offload;
      Choice choice{static_cast<int>(r), offload};
      if (!everywhere && too_slow_anywhere(choice)) {
        passed_over_ = true;
        const bool keeps_all = !offload && job_.recompute == Recompute{};
        counts.passed_over += keeps_all ? ways_to_keep() : 1;
        if (keeps_all) return;  // whatever is computed again is slower
        continue;
      }
      const size_t before = fitting_.size();
      const auto usual = [&] {
        return fitting_.size() > before && fitting_[before].residency == 0 && fitting_[before].sharding == 0;
      };
      weigh_homes(choice, most_bytes, everywhere);
      if (usual() && !all && !offload && job_.recompute == Recompute{}) return;
      // A plan that fits whole gains nothing from more messages.
      if (task_.shardings.size() == 1 || (usual() && !everywhere)) continue;
      choice.sharding = task_.shardings.size() - 1;
      if (goes(choice.sharding) && too_large_anywhere(choice, most_bytes)) continue;
      for (choice.sharding = 1; choice.sharding < task_.shardings.size(); ++choice.sharding)
        weigh_homes(choice, most_bytes, everywhere);
    }
  }
}

// How many recomputations and offloads the layout has.
uint64_t Estimator::ways_to_keep() const {
  uint64_t ways = 0;
  for (const RecomputeChoice& r : task_.recompute)
    for (const bool offload : task_.offload) ways += task_.allows(job_.pipeline, r.recompute, offload) ? 1 : 0;
  return ways;
}

// True if the layout can be sharded so. The first sharding need not change anything.
bool Estimator::goes(size_t sharding) {
  job_.sharding = task_.shardings[sharding];
  return sharding == 0 ? sharding_goes(job_) : shards(job_);
}

// Weighs the homes of a choice that has none.
void Estimator::weigh_homes(Choice choice, double most_bytes, bool everywhere) {
  if (!goes(choice.sharding)) return;
  for (size_t h = 0; h < task_.residencies.size(); ++h) {
    if (h == 1 && too_large_anywhere(choice, most_bytes)) break;
    if (!everywhere && h > 0 && !task_.leaves_least(h)) continue;
    choice.residency = h;
    Fit fit = weigh_one(choice, most_bytes);
    // The one that leaves least on the device may be too much for the host: then the others that cross alike are
    // tried.
    for (size_t other = h; fit == Fit::not_on_host && !everywhere && other-- > 1 && task_.cross_alike(other, h);) {
      choice.residency = other;
      fit = weigh_one(choice, most_bytes);
    }
    if (fit == Fit::fits && !everywhere) break;
  }
}

// Adds the choice to the fitting ones if it fits.
Estimator::Fit Estimator::weigh_one(Choice choice, double most_bytes) {
  job_.residency = task_.residencies[choice.residency];
  choice.replicas = job_.exchange.replicas;
  const Layers& layers = layers_now(choice);
  Estimate e;
  estimate_memory(job_, memory_parts(job_, task_.parameters, layers), e);
  choice.peak_bytes = e.peak_bytes;
  ++counts.plans;
  if (e.peak_bytes > most_bytes) {
    if (lightest_.peak_bytes == 0 || e.peak_bytes < lightest_.peak_bytes) lightest_ = choice;
    return Fit::not_on_device;
  }
  if (e.host_bytes > host_bytes_) return Fit::not_on_host;
  estimate_time(job_, task_.parameters, layers, task_.query.behaviour, e);
  choice.step_s = e.step_s;
  fitting_.push_back(choice);
  ++counts.fitting;
  return Fit::fits;
}

// True if the choice is too slow even with everything in its usual place: what crosses from there takes time.
// Shards shorten the end of a step at most.
bool Estimator::too_slow_anywhere(Choice choice) {
  constexpr double kSurely = 0.97;  // of the estimate: prices of lowered layers differ by a hair
  if (slowest_s == std::numeric_limits<double>::infinity() || !goes(0)) return false;
  const Estimate e = usually(choice);
  const double end_s = task_.shardings.size() > 1 ? e.time.data + e.time.optimizer : 0;
  return kSurely * (e.step_s - end_s) > slowest_s;
}

// The time of a choice with everything in its usual place.
Estimate Estimator::usually(Choice choice) {
  job_.residency = task_.residencies.front();
  job_.sharding = task_.shardings.front();
  Estimate e;
  estimate_time(job_, task_.parameters, layers_now(choice), task_.query.behaviour, e);
  return e;
}

// True if even the residency that leaves least on the device is too much there.
bool Estimator::too_large_anywhere(Choice choice, double most_bytes) {
  choice.residency = task_.lightest;
  choice.replicas = job_.exchange.replicas;
  job_.residency = task_.residencies[choice.residency];
  Estimate e;
  estimate_memory(job_, memory_parts(job_, task_.parameters, layers_now(choice)), e);
  choice.peak_bytes = e.peak_bytes;
  if (e.peak_bytes <= most_bytes) return false;
  if (e.peak_bytes < lightest_.peak_bytes) lightest_ = choice;
  return true;
}

void Estimator::layout() {
  ++counts.layouts;
  // Whatever is computed again or sent away takes time: where everything can be kept, nothing else is lowered.
  const int replicas = best_replicas();
  job_.exchange.replicas = replicas;
  weigh(task_.most_bytes(), job_.software.lowered == nullptr, false);
  // The slots may be what there is no room for.
  if (fitting_.empty() && !passed_over_ && replicas != task_.replicas.front() &&
      lightest_.peak_bytes - job_.software.reserve * replica_bytes(job_) <= task_.most_bytes()) {
    const Choice with = lightest_;
    job_.exchange.replicas = task_.replicas.front();
    weigh(task_.most_bytes(), job_.software.lowered == nullptr, false);
    if (fitting_.empty() && with.peak_bytes < lightest_.peak_bytes) lightest_ = with;
  }
  Candidate plan{family_, serial_++, job_.mesh.pp, job_.chunks, job_.mesh.dp, job_.pipeline, lightest_};
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

}  // namespace heddle::search

#include "synthesis/bounds.h"

#include <algorithm>

namespace heddle::schedule {

namespace {

/// The least that a stage's parts take of a rank's time, and the least from the start of an F or I to its end.
struct Least {
  double forward_work, backward_work, forward, input_grad;
};

Least least_of(const StageTimes& of, double pair, bool pairs) {
  const double backward = of.input_grad + of.weight_grad;
  Least least{of.forward + of.all_to_all, backward + of.all_to_all, of.forward + of.all_to_all,
              of.input_grad + of.all_to_all};
  if (!pairs) return least;
  least.forward_work = std::min(least.forward_work, pair * of.forward);
  least.backward_work = std::min(least.backward_work, pair * backward);
  // A pair ends as a whole, so not before its own part.
  least.forward = std::min(least.forward, pair * of.forward);
  least.input_grad = std::min(least.input_grad, pair * backward);
  return least;
}

}  // namespace

Bounds bounds_of(const OrderTask& task, bool pairs) {
  const Placement& placement = task.placement;
  const auto stages = static_cast<size_t>(placement.stages), ranks = static_cast<size_t>(placement.ranks);
  std::vector<Least> least;
  for (const StageTimes& of : task.times.stages) least.push_back(least_of(of, task.times.pair, pairs));
  const auto hop = [&](size_t stage) {  // from the stage to the next one
    return placement.rank_of[stage] == placement.rank_of[stage + 1] ? 0 : task.times.hop;
  };

  std::vector<double> begins(ranks, Orders::kNever), work(ranks, 0), held(ranks, 0);
  double way = 0;
  for (size_t s = 0; s < stages; ++s) {
    const auto r = static_cast<size_t>(placement.rank_of[s]);
    begins[r] = std::min(begins[r], way);
    work[r] += least[s].forward_work + least[s].backward_work;
    way += least[s].forward + (s + 1 < stages ? hop(s) : 0);
  }
  double life = 0, whole_life = 0;  // from the start of the stage's F to the end of its I, and of its W
  for (size_t s = stages; s-- > 0;) {
    life += least[s].forward + least[s].input_grad + (s + 1 < stages ? 2 * hop(s) : 0);
    whole_life = life - least[s].input_grad + least[s].backward_work;
    held[placement.rank_of[s]] +=
        task.bytes[s].until_input_grad * life + task.bytes[s].until_weight_grad * whole_life;
  }

  Bounds bounds;
  bounds.chain = whole_life;
  for (size_t r = 0; r < ranks; ++r) {
    if (begins[r] == Orders::kNever) continue;
    bounds.work = std::max(bounds.work, begins[r] + task.microbatches * work[r]);
    if (task.cap_bytes[r] > 0)
      bounds.memory = std::max(bounds.memory, begins[r] + task.microbatches * held[r] / task.cap_bytes[r]);
  }
  return bounds;
}

}  // namespace heddle::schedule

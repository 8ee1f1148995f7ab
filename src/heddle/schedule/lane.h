// One rank's list while a generator writes it: a stage always computes its next microbatch. So the microbatches of
// every stage and kind come in increasing order, W's as the numerical law demands.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include "heddle/base/error.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

class Lane {
 public:
  /// Appends to the list of `rank`.
  Lane(Schedule& schedule, int rank) : schedule_(schedule), order_(schedule.order[rank]) {}

  void F(int stage) { order_.push_back({next(Kind::F, stage), {}}); }
  /// The input gradient; its weight gradient joins the queue.
  void I(int stage) {
    order_.push_back({next(Kind::I, stage), {}});
    waiting_.push_back(stage);
  }
  void W(int stage) {
    const auto at = std::find(waiting_.begin(), waiting_.end(), stage);
    HEDDLE_CHECK(at != waiting_.end(), "{}: no weight gradient of stage {} waits", schedule_.name, stage);
    waiting_.erase(at);
    order_.push_back({next(Kind::W, stage), {}});
  }
  /// The weight gradient that waits longest.
  void W() {
    HEDDLE_CHECK(!waiting_.empty(), "{}: no weight gradient waits", schedule_.name);
    W(waiting_.front());
  }
  void B(int stage) { order_.push_back({both(stage), {}}); }
  /// [F|B].
  void pair(int forward, int backward) {
    const Compute first = next(Kind::F, forward);
    order_.push_back({first, both(backward)});
  }
  /// The number of the kind that the stage has had; a B counts as its I and its W.
  int done(Kind kind, int stage) const {
    const auto at = done_.find(stage);
    return at == done_.end() ? 0 : at->second[static_cast<size_t>(kind)];
  }

 private:
  Compute next(Kind kind, int stage) {
    const int first = schedule_.placement.microbatches_of(stage, schedule_.microbatches).first;
    return {kind, stage, first + done_[stage][static_cast<size_t>(kind)]++};
  }
  Compute both(int stage) {
    Compute compute = next(Kind::I, stage);
    next(Kind::W, stage);
    compute.kind = Kind::B;
    return compute;
  }

  Schedule& schedule_;
  std::vector<Action>& order_;
  std::map<int, std::array<int, 3>> done_;
  std::deque<int> waiting_;
};

/// A schedule without actions. ConfigError unless ranks and microbatches are positive and within bounds.
/// `placement` must give a rank at most two stages.
Schedule blank_schedule(const char* name, Placement (*placement)(int ranks), int ranks, int microbatches);

}  // namespace heddle::schedule

// A schedule as a graph: which actions wait for which, and in what order they can all run.
//
// Actions are numbered rank after rank, each rank's in the order of its list. All edges come from needs(); that a
// rank runs its list in order is implied by the numbers. What timing, validation and pictures have in common.
#pragma once

#include <string>
#include <vector>

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

inline constexpr int kMostRanks = 1 << 16;
inline constexpr int kMostStages = 1 << 16;
inline constexpr int64_t kMostCells = 1 << 22;  // (stage, microbatch) of one schedule

/// Throws ConfigError unless ranks, stages and microbatches are positive and within the limits above, and each
/// stage has a rank.
void check_size(const Placement& placement, int64_t microbatches);

/// The one or two computations of an action.
struct Parts {
  Compute compute[2];
  int count = 0;
  const Compute* begin() const { return compute; }
  const Compute* end() const { return compute + count; }
};
inline Parts parts_of(const Action& action) {
  return action.with ? Parts{{action.first, *action.with}, 2} : Parts{{action.first, {}}, 1};
}

/// (kind, stage, microbatch) to numbers without gaps; for F, I and W.
class Numbering {
 public:
  explicit Numbering(const Schedule& s)
      : cells_(s.placement.rank_of.size() * static_cast<size_t>(s.microbatches)), microbatches_(s.microbatches) {}
  size_t size() const { return 3 * cells_; }
  size_t operator()(Kind kind, int stage, int microbatch) const {
    return static_cast<size_t>(kind) * cells_ + static_cast<size_t>(stage) * static_cast<size_t>(microbatches_) +
           static_cast<size_t>(microbatch);
  }

 private:
  size_t cells_;
  int microbatches_;
};

struct Links {
  std::vector<int> first_of;      // of each rank the number of its first action; one more at the end
  std::vector<int> rank_of;       // of each action
  std::vector<const Action*> at;  // of each action; points into the schedule
  std::vector<int> begin, from;   // action a waits for from[begin[a]] … from[begin[a + 1] − 1]
  std::vector<int> producer;      // by Numbering: the action that computes it, or −1

  int actions() const { return static_cast<int>(at.size()); }
};

/// Throws ConfigError where an action is outside of the schedule's stages and microbatches, on another rank than
/// its stage, twice in the schedule, an ill-formed pair, or needs what no rank computes.
Links links_of(const Schedule& schedule);

/// All actions in an order in which each comes after what it waits for. When there is none, a ConfigError with the
/// picture: every rank's line around the action where it is stuck, and what that waits for.
std::vector<int> running_order(const Schedule& schedule, const Links& links);

/// The picture for `reached[r]` actions done on each rank r; `waits_for` says of an action what it lacks.
std::string stuck_picture(const Schedule& schedule, const std::vector<int>& reached,
                          const std::vector<std::string>& waits_for);

}  // namespace heddle::schedule

// A schedule as a graph: which actions wait for which, and in what order they can all run.
//
// Actions are numbered rank after rank, each rank's in the order of its list. All edges come from needs(); that a
// rank runs its list in order is implied by the numbers. What timing, validation and pictures have in common.
#pragma once

#include <functional>
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

/// Throws ConfigError where an action is outside of the schedule's stages and microbatches, or on another rank than
/// its stage. Also where it is twice in the schedule, an ill-formed pair, or needs what no rank computes.
Links links_of(const Schedule& schedule);

/// The progress of the ranks when each runs its list in order.
struct Progress {
  std::vector<int> order;  // actions in an order in which they ran
  std::vector<int> next;   // of each rank the action it is at; links.first_of[r + 1] when it is done
  std::vector<char> done;  // of each action
};

/// Runs the lists, each action once all it waits for is done and `holds(action, done)` gives −1 instead of one more
/// action to wait for.
template <class Holds>
Progress run_lists(const Links& links, const Holds& holds) {
  const size_t ranks = links.first_of.size() - 1;
  Progress p{{}, {links.first_of.begin(), links.first_of.end() - 1}, std::vector<char>(links.at.size(), 0)};
  p.order.reserve(links.at.size());
  std::vector<int> ready(ranks), next_waiting(ranks, -1), first_waiting(links.at.size(), -1);  // ranks, by action
  for (size_t r = 0; r < ranks; ++r) ready[r] = static_cast<int>(ranks - 1 - r);
  while (!ready.empty()) {
    const auto r = static_cast<size_t>(ready.back());
    ready.pop_back();
    for (int& a = p.next[r]; a < links.first_of[r + 1]; ++a) {
      const auto at = static_cast<size_t>(a);
      int missing = -1;
      for (int i = links.begin[at]; i < links.begin[at + 1] && missing < 0; ++i) {
        const int need = links.from[i];
        if (!p.done[need]) missing = need;
      }
      if (missing < 0) missing = holds(a, p.done);
      if (missing >= 0) {
        next_waiting[r] = first_waiting[missing];
        first_waiting[missing] = static_cast<int>(r);
        break;
      }
      p.done[at] = 1;
      p.order.push_back(a);
      for (int w = first_waiting[at]; w >= 0;) {
        ready.push_back(w);
        w = next_waiting[w];
      }
    }
  }
  return p;
}

/// All actions in an order in which each comes after what it waits for. When there is none, a ConfigError with the
/// picture: every rank's line around the action where it is stuck, and what that waits for.
std::vector<int> running_order(const Schedule& schedule, const Links& links);

/// The picture of ranks that can't go on; `also_waits` says of an action what it lacks besides other actions.
std::string stuck_picture(const Schedule& schedule, const Links& links, const Progress& progress,
                          const std::function<std::string(int action)>& also_waits);

}  // namespace heddle::schedule

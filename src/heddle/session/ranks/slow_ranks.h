// Finds ranks that are slower than others which do the same, from the time that each works, without its waits. A
// rank that waits for a slow one works no longer than usual, and is never blamed.
//
// Work is compared kind by kind within a cohort: ranks that run the same program. The work of experts counts by the
// row, so that a rank with hot experts is not taken for a slow one. Medians of windows of 20 steps are compared. A
// rank is slow if it takes at least a tenth longer than its cohort's median, beyond 3.5 times what chance moves
// such a median by. This must hold in three windows one behind the other; as many without end it. A cohort of one
// rank can't be judged.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "heddle/train/step/result.h"

namespace heddle::session {

enum class WorkKind : uint8_t { forward, backward, update, experts };
inline constexpr size_t kWorkKinds = 4;
std::string_view name_of(WorkKind kind);

/// The amount by which chance moves the median of such numbers.
double chance_of(const std::vector<double>& numbers);

struct SlowRank {
  int rank = 0;
  WorkKind kind = WorkKind::forward;
  int64_t since = 0;    // the first step of its first slow window
  double times = 1;     // its time over its cohort's, in the last window
  double excess_s = 0;  // extra work in a step over its cohort's
};

class SlowRanks {
 public:
  static constexpr int64_t kWindow = 20;
  static constexpr int kWindows = 3;
  static constexpr double kLeastExcess = 0.1, kBeyondChance = 3.5;

  /// `cohorts`: a number for each rank, the same of those that do the same.
  explicit SlowRanks(std::vector<int> cohorts);

  /// A step's work, by rank. Whether a window has ended with it.
  bool add(int64_t step, std::span<const train::RankWork> work);

  /// After a window: the ranks found slow with it, and those that are so no more.
  const std::vector<SlowRank>& found() const { return found_; }
  const std::vector<SlowRank>& ended() const { return ended_; }
  /// All that are slow.
  std::vector<SlowRank> slow() const;
  /// Extra work of the slowest rank in a step of the last window, where that was a slow one, found yet or not.
  double suspected_s() const;
  /// Each rank's time over its cohort's median in the last window; NaN where it is not known.
  std::vector<std::array<double, kWorkKinds>> ratios() const { return ratios_; }

 private:
  struct State {
    int slow_windows = 0, quick_windows = 0;
    double suspected_s = 0;
    std::optional<SlowRank> slow;
    int64_t since = 0;
  };
  void judge(WorkKind kind, const std::vector<size_t>& cohort);
  void judge(State& state, const SlowRank& now, bool is_slow);

  std::vector<int> cohorts_;
  int64_t first_ = 0;                                            // the window's first step
  std::vector<std::array<std::vector<double>, kWorkKinds>> of_;  // numbers by rank: one a step
  std::vector<double> rows_;                                     // rows by rank, of the window's steps
  std::vector<std::array<State, kWorkKinds>> states_;
  std::vector<std::array<double, kWorkKinds>> ratios_;
  std::vector<SlowRank> found_, ended_;
};

}  // namespace heddle::session

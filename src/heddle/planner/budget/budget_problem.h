// A configuration as the choice of what to drop sees it: its program with values dropped, the bytes of each of its
// ranks, and the predicted length of its step.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "heddle/planner/budget/drop_values.h"
#include "heddle/planner/budget/state_residencies.h"
#include "heddle/simulate/block_times.h"

namespace heddle::planner {

class BudgetProblem {
 public:
  BudgetProblem(const config::RunConfig& config, bool own_memory);

  int64_t budget_bytes() const { return budget_bytes_; }
  int ranks() const { return plan_.mesh.pp; }
  const ValueDropper& dropper() const { return *dropper_; }
  const Open& open() const { return open_; }
  const plan::Plan& plan() const { return plan_; }
  int layers() const { return layers_; }

  /// The part of the program: all of it; with so few microbatches that ranks hold as many at once; or the training
  /// step alone.
  enum class Extent : uint8_t { whole, few, step };
  using Lowered = std::shared_ptr<const plan::Lowered>;
  /// ConfigError where these homes don't go with what else is set. One of the last few is not made again. By one
  /// thread at a time.
  Lowered lowered(const StateResidencies& residencies, const DroppedValues& given,
                  Extent extent = Extent::whole) const;
  /// Programs lowered, and steps walked dry, so far.
  int lowerings() const { return lowerings_; }
  int walks() const { return walks_; }

  /// The bytes of a rank's arena, about, and soon known.
  int64_t measured_bytes(const plan::Lowered& lowered, int rank) const;
  /// True if the arena keeps to so many.
  bool keeps_to(const plan::Lowered& lowered, int rank, int64_t bytes) const;
  /// Exactly, however many.
  int64_t bound_bytes(const plan::Lowered& lowered, int rank) const;
  /// True if dropping on one rank may change the order in which another one runs (schedule/lower).
  bool ranks_lean_on_each_other() const { return lean_; }
  double persistent_bytes(const plan::Lowered& lowered, int rank) const;
  /// The first rank of a pipeline rank.
  static int first_rank(const plan::Lowered& lowered, int rank);
  simulate::BlockTimes times(const plan::Lowered& lowered) const;
  /// Microbatches that go through a rank.
  double microbatches() const { return plan_.microbatches; }

 private:
  const config::RunConfig& config_;
  plan::Plan plan_, short_plan_;
  passes::Durations duration_us_;
  int64_t budget_bytes_;
  int layers_;
  bool lean_ = false;
  Open open_;
  std::optional<ValueDropper> dropper_;
  mutable std::deque<std::pair<std::string, Lowered>> last_;  // the newest first
  mutable int lowerings_ = 0;
  mutable std::atomic<int> walks_ = 0;
};

}  // namespace heddle::planner

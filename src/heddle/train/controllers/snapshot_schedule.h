// Starts copies of the state into memory: every so many steps, and when asked for. A copy begins before a step and
// runs beside it (train/saved/snapshots.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "heddle/train/controllers/controllers.h"
#include "heddle/train/saved/snapshots.h"

namespace heddle::train {

class SnapshotSchedule : public Controller {
 public:
  explicit SnapshotSchedule(ControllerContext& context);
  static bool wanted(const TrainerOptions& options);

  /// Every rank decides alike: it follows from the step, or from what all have received.
  void before(const NextStep& step, device::Inputs& inputs) override;
  bool ran(device::Inputs& inputs) override;

  Snapshots& snapshots() { return *snapshots_; }
  /// Sets the note that seals each copy, besides what the trainer knows; without one the trainer's alone does.
  void set_note(std::function<SnapshotNote()> note) { note_ = std::move(note); }
  /// The next step begins with a copy, whatever its number; the same on every rank.
  void ask() { asked_ = true; }
  /// Steps between copies: the plan's, until another number is set, which is the same on every rank.
  int64_t every() const { return every_; }
  void set_every(int64_t steps) { every_ = steps; }

 private:
  const Controllers& others_;
  RankExchange& ranks_;
  runtime::Executor& executor_;
  const std::unique_ptr<Snapshots> snapshots_;
  const std::function<CheckpointState(CheckpointState)> state_of_now_;
  std::function<SnapshotNote()> note_;
  int64_t every_;
  bool asked_ = false;
};

/// Null: the plan has none.
Snapshots* snapshots_in(const Controllers& controllers);

}  // namespace heddle::train

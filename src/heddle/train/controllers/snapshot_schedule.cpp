#include "heddle/train/controllers/snapshot_schedule.h"

#include <utility>

#include "heddle/train/controllers/expert_migration.h"
#include "heddle/train/trainer_options.h"

namespace heddle::train {

SnapshotSchedule::SnapshotSchedule(ControllerContext& context)
    : others_(context.others),
      ranks_(context.ranks),
      executor_(context.executor),
      snapshots_(std::move(context.snapshots)),
      state_of_now_(context.state_of_now),
      every_(context.options.plan.snapshot_every) {}

bool SnapshotSchedule::wanted(const TrainerOptions& options) { return options.plan.snapshot_every > 0; }

void SnapshotSchedule::before(const NextStep& step, device::Inputs& /*inputs*/) {
  if (!asked_ && (step.done.steps == 0 || step.done.steps % every_ != 0)) return;
  SnapshotNote note = note_ ? note_() : SnapshotNote();
  note.state = state_of_now_(std::move(note.state));
  snapshots_->begin(executor_, ranks_, std::exchange(asked_, false), std::move(note), placements_in(others_));
}

bool SnapshotSchedule::ran(device::Inputs& /*inputs*/) {
  if (snapshots_->is_open()) snapshots_->end();
  return false;
}

Snapshots* snapshots_in(const Controllers& controllers) {
  auto* copies = controllers.find<SnapshotSchedule>();
  return copies == nullptr ? nullptr : &copies->snapshots();
}

}  // namespace heddle::train

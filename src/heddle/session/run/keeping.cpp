#include "heddle/session/run/keeping.h"

#include <string>

#include "heddle/session/run/context.h"
#include "heddle/train/controllers/snapshot_schedule.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

// If an agent writes checkpoints, one costs the ranks what a copy does.
void choose_frequency(RunContext& run) {
  const SnapshotFrequency& costs = run.keeping.costs;
  if (!costs.chooses()) return;
  train::Trainer& trainer = *run.trainer;
  auto* schedule = trainer.controllers().find<train::SnapshotSchedule>();
  const bool kept = schedule != nullptr && trainer.options().snapshots.kept;
  const int64_t copy = costs.copy_every(), save = kept ? 0 : costs.save_every();
  const std::string agreed = trainer.ranks().from_first_rank(fmt::format("{} {}", copy, save));
  const int64_t copy_every = std::stoll(agreed), save_every = std::stoll(agreed.substr(agreed.find(' ')));
  if (copy_every > 0 && schedule != nullptr) schedule->set_every(copy_every);
  if (save_every > 0 && run.keeping.every > 0) run.keeping.every = save_every;
  if (!run.leads() || (copy_every == 0 && save_every == 0)) return;
  run.terminal.line(frequency_note(copy_every, save_every, costs.copy_s(), costs.save_s(), costs.step_s(),
                                   run.config.train.mtbf_hours * 3600));
}

}  // namespace heddle::session

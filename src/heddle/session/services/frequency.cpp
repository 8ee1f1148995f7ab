// Says which steps are followed by a checkpoint. With train.mtbf_hours it measures what steps, copies in memory and
// checkpoints take, and chooses how often the state is kept (agent/frequency.h).
#include <utility>

#include "heddle/session/services/services.h"
#include "heddle/train/controllers/snapshot_schedule.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

namespace {

class FrequencyService final : public Service {
 public:
  using Service::Service;

  void after(StepRecord& record) override {
    record.saves = run_.keeping.every > 0 && record.result.step % run_.keeping.every == 0;
    auto* schedule = run_.trainer->controllers().find<train::SnapshotSchedule>();
    if (schedule != nullptr && run_.leads())
      if (const std::string note = schedule->snapshots().take_note(); !note.empty()) run_.warn(note);
    if (!run_.keeping.costs.chooses()) return;
    learn(record.result.seconds);
    record.metrics.set(observe::figures::kCheckpointEvery, static_cast<double>(run_.keeping.every));
    record.metrics.set(observe::figures::kSnapshotEvery,
                       schedule == nullptr ? 0 : static_cast<double>(schedule->every()));
  }

 private:
  void learn(double step_s) {
    SnapshotFrequency& costs = run_.keeping.costs;
    const train::Snapshots* schedule = train::snapshots_in(run_.trainer->controllers());
    const bool with_snapshot = schedule != nullptr && schedule->sealed() > snapshots_seen_;
    if (with_snapshot) {
      costs.copy_blocked(schedule->blocked_s() - std::exchange(blocked_seen_s_, schedule->blocked_s()));
      snapshots_seen_ = schedule->sealed();
    }
    costs.step(step_s, with_snapshot);
    if (costs.steps() == SnapshotFrequency::kLearned) choose_frequency(run_);
  }

  int64_t snapshots_seen_ = 0;  // number of copies in memory
  double blocked_seen_s_ = 0;   // time for which they have kept this rank from its steps
};

}  // namespace

std::unique_ptr<Service> make_frequency(RunContext& run) { return std::make_unique<FrequencyService>(run); }

}  // namespace heddle::session

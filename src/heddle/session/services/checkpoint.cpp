// Keeps the state of a run. On disk: every so many steps, when the user asks, and at the end. In memory, where the
// plan has such copies (train/saved/snapshots.h): the trainer makes them; they go when the disk has all. Where an
// agent writes to disk what lies in memory, the ranks only copy it there.
#include <utility>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/session/agent/persist.h"
#include "heddle/session/agent/run_memory.h"
#include "heddle/session/run_checkpoint.h"
#include "heddle/session/services/services.h"
#include "heddle/train/controllers/snapshot_schedule.h"

namespace heddle::session {

namespace {

// True if a segment is of the job that trains now.
bool is_of(const train::SegmentFiles& files, const train::SnapshotPlace& place) {
  try {
    return train::Segment(files).index().run == place.run;
  } catch (const Error&) {
    return false;
  }
}

class CheckpointService final : public Service {
 public:
  using Service::Service;

  void start() override {
    if (schedule() != nullptr) begin_snapshots(*schedule());
  }

  void grant(const Wishes& wished) override {
    if (wished.save) save_once();
  }

  void after(StepRecord& record) override {
    if (!record.saves) return;
    record.plain = false;
    if (schedule() == nullptr || !run_.trainer->options().snapshots.kept || schedule()->snapshots().is_lost() ||
        run_.is_over())
      return save();
    persists_ = true;
    schedule()->ask();
  }

  void end() override {
    save_once();
    if (schedule() == nullptr) return;
    schedule()->snapshots().remove();
    forget_memory(run_.folder, run_.trainer->options().snapshots, run_.trainer->ranks());
  }

 private:
  train::SnapshotSchedule* schedule() const { return run_.trainer->controllers().find<train::SnapshotSchedule>(); }

  void begin_snapshots(train::SnapshotSchedule& schedule) {
    train::Trainer& trainer = *run_.trainer;
    const train::SnapshotPlace& place = trainer.options().snapshots;
    // Each rank for the memory of its host: others reach what it does not.
    std::vector<train::SegmentFiles> old;
    for (const std::string& folder : memory_folders(run_.folder)) {
      for (train::SegmentFiles& files : train::segments_in(folder)) {
        // Segments of this job's other hosts lie in folders of their own agents.
        if (!is_of(files, place)) old.push_back(std::move(files));
      }
    }
    // If several folders are emptied, the others go at the end of the run.
    std::vector<std::string> emptied = folders_of_ranks(run_.folder);
    std::erase(emptied, place.folder);
    schedule.snapshots().supersede(std::move(old), emptied.empty() ? "" : emptied.front());
    trainer.ranks().any(false);  // before the note names another folder
    if (run_.leads()) note_memory(run_.folder, place);
    schedule.set_note([this] {
      return train::SnapshotNote{state_of_run(run_.config, run_.data_identity, *run_.trainer, run_.digest_now()),
                                 std::exchange(persists_, false)};
    });
  }

  void save_once() {
    if (run_.keeping.saved_step != run_.trainer->steps_done()) save();
  }

  void save() {
    run_.answer_signals("the checkpoint");
    const double start_s = now_s();
    if (run_.leads()) run_.look_at_folder();
    run_.within([&] { run_.patience.save(); },
                [&] {
                  run_.summary.checkpoint =
                      save_run(run_.folder, run_.config, run_.data_identity, *run_.trainer, run_.digest_now());
                  if (run_.leads()) remove_pending(run_.folder, run_.trainer->steps_done());
                });
    Keeping& keeping = run_.keeping;
    keeping.saved_step = run_.trainer->steps_done();
    keeping.costs.saved(now_s() - start_s);
    run_.patience.saved(now_s() - start_s);
    if (keeping.costs.steps() > SnapshotFrequency::kLearned && !run_.is_over()) choose_frequency(run_);
  }

  bool persists_ = false;  // the next copy in memory is to go to disk
};

}  // namespace

std::unique_ptr<Service> make_checkpoint(RunContext& run) { return std::make_unique<CheckpointService>(run); }

}  // namespace heddle::session

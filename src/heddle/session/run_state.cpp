// Where the state of a run comes from and where it is kept: first weights, checkpoints, copies in memory.
#include <limits>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/session/agent/lend.h"
#include "heddle/session/agent/persist.h"
#include "heddle/session/agent/run_memory.h"
#include "heddle/session/first_state.h"
#include "heddle/session/notes/resume_notes.h"
#include "heddle/session/notes/start_notes.h"
#include "heddle/session/pairs/references.h"
#include "heddle/session/run_checkpoint.h"
#include "heddle/session/text/companions.h"
#include "heddle/session/training_run.h"

namespace heddle::session {

namespace {

// Whether a segment is of the job that trains now.
bool is_of(const train::SegmentFiles& files, const train::SnapshotPlace& place) {
  try {
    return train::Segment(files).index().run == place.run;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void TrainingRun::begin_snapshots() {
  if (trainer_->snapshots() == nullptr) return;
  const train::SnapshotPlace& place = trainer_->options().snapshots;
  // Each rank for the memory of its host: what it does not reach, others do.
  std::vector<train::SegmentFiles> old;
  for (const std::string& folder : memory_folders(folder_)) {
    for (train::SegmentFiles& files : train::segments_in(folder)) {
      // Those of this job's other hosts lie in folders of their own agents.
      if (!is_of(files, place)) old.push_back(std::move(files));
    }
  }
  // Of several the emptied folders go at the end of the run.
  std::vector<std::string> emptied = folders_of_ranks(folder_);
  std::erase(emptied, place.folder);
  trainer_->snapshots()->supersede(std::move(old), emptied.empty() ? "" : emptied.front());
  trainer_->ranks().any(false);  // before the note names another folder
  if (leads()) note_memory(folder_, place);
  trainer_->set_snapshot_note([this] {
    return train::SnapshotNote{state_of_run(config_, data_identity_, *trainer_, digest_now()),
                               std::exchange(persists_, false)};
  });
}

// Of the weights as they are; "": it was not taken after this step.
std::string TrainingRun::digest_now() const {
  return digest_step_ == trainer_->steps_done() ? summary_.weights_digest : "";
}

// Every rank from the same checkpoint, which rank 0 has read whole and names to the others; from one before where
// it holds what no training can go on from; from the beginning where there is none.
void TrainingRun::restore() {
  if (std::optional<train::Checkpoint> memory = memory_to_go_on_from(); memory && go_on_from(*memory)) return;
  for (int64_t last_step = std::numeric_limits<int64_t>::max();;) {
    std::optional<train::Checkpoint> checkpoint =
        leads() ? checkpoint_to_go_on_from(folder_, config_, data_identity_, warnings_, last_step) : std::nullopt;
    const std::string path = trainer_->ranks().told_by_first(checkpoint ? checkpoint->path() : "");
    if (path.empty()) break;
    if (!checkpoint) checkpoint.emplace(path, train::Checkpoint::Verify::headings);
    if (go_on_from(*checkpoint)) {
      summary_.checkpoint = path;
      saved_step_ = trainer_->steps_done();
      return;
    }
    last_step = checkpoint->state().step - 1;
  }
  if (leads()) {
    for (std::string& note : resume_notes(folder_, config_, nullptr, trainer_->options().plan.dtype))
      warnings_.push_back(std::move(note));
  }
  begin_anew();
}

// Whether the state that it holds is one to go on from.
bool TrainingRun::go_on_from(const train::Checkpoint& checkpoint) {
  train::load_trainer(checkpoint, *trainer_);
  std::string wrong = train::not_finite_in(*trainer_);
  wrong = wrong.empty() ? digest_mismatch(checkpoint, *trainer_)
                        : fmt::format("{}: '{}' is not finite", checkpoint.path(), wrong);
  if (!wrong.empty()) {
    if (leads()) warnings_.push_back("passed over: " + wrong);
    return false;
  }
  if (leads()) {
    for (std::string& note : resume_notes(folder_, config_, &checkpoint.state(), trainer_->options().plan.dtype))
      warnings_.push_back(std::move(note));
  }
  if (config_.plan.objective.of_pairs()) read_references(folder_, data_);
  return true;
}

// What lies in memory and is newer than what is on disk, if all ranks can reach it.
std::optional<train::Checkpoint> TrainingRun::memory_to_go_on_from() {
  std::optional<train::Checkpoint> found =
      leads() ? newest_of_memory(folder_, config_, data_identity_, warnings_) : std::nullopt;
  const std::string told = trainer_->ranks().told_by_first(
      found ? fmt::format("{} {}", found->state().step, found->state().generation) : "0 0");
  const int64_t step = std::stoll(told), generation = std::stoll(told.substr(told.find(' ')));
  if (step == 0) return std::nullopt;
  if (!leads())
    found = train::newest_in_memory(memory_folders(folder_), false, nullptr, step, generation,
                                    lent_segments(folder_, nullptr));
  if (trainer_->ranks().any(!found)) {
    if (leads()) warnings_.push_back(fmt::format("the memory of step {} is not within reach of every rank", step));
    return std::nullopt;
  }
  if (leads()) warnings_.push_back(fmt::format("going on from {}", found->path()));
  return found;
}

void TrainingRun::begin_anew() {
  std::vector<std::string> notes = begin_from_first_state(config_, *trainer_, [&] {
    if (config_.plan.objective.of_pairs()) make_references(folder_, config_.train.eval_sequences, *trainer_, data_);
  });
  const std::string& start = config_.train.start;
  if (const std::string other = start.empty() ? "" : other_tokenizer(start, data_.tokenizer); !other.empty())
    notes.push_back(other);
  if (!leads()) return;
  for (const std::string& note : notes) warn("train.start: " + note);
}

// Where an agent writes to disk what lies in memory, the ranks only copy it there.
void TrainingRun::checkpoint() {
  if (trainer_->snapshots() == nullptr || !trainer_->options().snapshots.kept || is_over()) return save();
  persists_ = true;
  trainer_->ask_for_snapshot();
}

void TrainingRun::save() {
  answer_signals("the checkpoint");
  const double start_s = now_s();
  summary_.checkpoint = save_run(folder_, config_, data_identity_, *trainer_, digest_now());
  if (leads()) remove_pending(folder_, trainer_->steps_done());
  saved_step_ = trainer_->steps_done();
  frequency_.saved(now_s() - start_s);
  if (frequency_.steps() > CopyFrequency::kLearned && !is_over()) choose_frequency();
}

// What a step and the copy beside it have taken; once there were enough, how often from now on.
void TrainingRun::mind_frequency(const train::StepResult& result) {
  if (!frequency_.chooses()) return;
  const train::Snapshots* copies = trainer_->snapshots();
  const bool with_copy = copies != nullptr && copies->copies() > copies_seen_;
  if (with_copy) {
    frequency_.copy_blocked(copies->blocked_s() - std::exchange(blocked_seen_s_, copies->blocked_s()));
    copies_seen_ = copies->copies();
  }
  frequency_.step(result.seconds, with_copy);
  if (frequency_.steps() == CopyFrequency::kLearned) choose_frequency();
}

// As rank 0 has measured it, for all. Where an agent writes checkpoints, one costs the ranks what a copy does.
void TrainingRun::choose_frequency() {
  if (!frequency_.chooses()) return;
  const bool kept = trainer_->snapshots() != nullptr && trainer_->options().snapshots.kept;
  const int64_t copy = frequency_.copy_every(), save = kept ? 0 : frequency_.save_every();
  const std::string told = trainer_->ranks().told_by_first(fmt::format("{} {}", copy, save));
  const int64_t copy_every = std::stoll(told), save_every = std::stoll(told.substr(told.find(' ')));
  if (copy_every > 0 && trainer_->snapshots() != nullptr) trainer_->set_snapshot_every(copy_every);
  if (save_every > 0 && checkpoint_every_ > 0) checkpoint_every_ = save_every;
  if (!leads() || (copy_every == 0 && save_every == 0)) return;
  const std::string line = frequency_note(copy_every, save_every, frequency_.copy_s(), frequency_.save_s(),
                                          frequency_.step_s(), config_.train.mtbf_hours * 3600);
  if (progress_) progress_->line(line);
}

}  // namespace heddle::session

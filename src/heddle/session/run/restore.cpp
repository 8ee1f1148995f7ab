#include "heddle/session/run/restore.h"

#include <utility>

#include "heddle/session/agent/run_memory.h"
#include "heddle/session/agent/shared_segments.h"
#include "heddle/session/first_state.h"
#include "heddle/session/notes/resume_notes.h"
#include "heddle/session/notes/start_notes.h"
#include "heddle/session/pairs/references.h"
#include "heddle/session/run_data.h"
#include "heddle/train/adapters/peft_files.h"

namespace heddle::session {

namespace {

using LookedUp = std::optional<std::optional<SavedState>>;

// The newest one that opens, if all ranks can reach it; none: there is none.
std::optional<SavedState> newest_for_all(RunContext& run, LookedUp& looked_up, LastSteps& last) {
  const std::string memory_word = "memory", disk_word = "disk";
  for (;;) {
    std::optional<SavedState> found;
    if (auto first = std::exchange(looked_up, std::nullopt)) {
      found = std::move(*first);
    } else if (run.leads()) {
      std::vector<std::string> passed_over;
      found = newest_state(run.folder, run.config, run.data_identity, passed_over, last);
      run.terminal.warn(passed_over);
    }
    train::RankExchange& ranks = run.trainer->ranks();
    const std::string place = ranks.from_first_rank(!found             ? ""
                                                    : found->in_memory ? memory_word
                                                                       : disk_word + found->checkpoint.path());
    if (place.empty()) return std::nullopt;
    if (place != memory_word) {
      if (!found)
        found.emplace(train::Checkpoint(place.substr(disk_word.size()), train::Checkpoint::Verify::headings));
      return found;
    }
    const train::CheckpointState none;
    const train::CheckpointState& state = found ? found->checkpoint.state() : none;
    const std::string agreed = ranks.from_first_rank(fmt::format("{} {}", state.step, state.generation));
    const int64_t step = std::stoll(agreed), generation = std::stoll(agreed.substr(agreed.find(' ')));
    if (!found) {
      auto own = train::newest_in_memory(memory_folders(run.folder), false, nullptr, step, generation,
                                         shared_segments(run.folder, nullptr));
      if (own) found.emplace(std::move(*own), true);
    }
    if (!ranks.any(!found)) return found;
    if (run.leads()) run.warn(fmt::format("the memory of step {} is not within reach of every rank", step));
    last.in_memory = step - 1;
  }
}

// True if training can go on from the state that it holds.
bool go_on_from(RunContext& run, const train::Checkpoint& checkpoint) {
  train::Trainer& trainer = *run.trainer;
  train::load_trainer(checkpoint, trainer);
  std::vector<std::string> unread;
  const std::string logged = trainer.ranks().from_first_rank(
      run.leads() ? logged_digest(run.folder, checkpoint.state().step, unread) : "");
  run.terminal.warn(unread);
  std::string wrong = train::not_finite_in(trainer);
  wrong = wrong.empty() ? digest_mismatch(checkpoint, logged, trainer)
                        : fmt::format("{}: '{}' is not finite", checkpoint.path(), wrong);
  if (!wrong.empty()) {
    if (run.leads()) run.warn("passed over: " + wrong);
    return false;
  }
  if (run.leads()) {
    if (const std::string note = other_log_note(checkpoint, logged); !note.empty()) run.warn(note);
    run.terminal.warn(resume_notes(run.folder, run.config, &checkpoint.state(), trainer.options().plan.dtype));
  }
  if (run.config.plan.objective.of_pairs()) read_references(run.folder, *run.data);
  return true;
}

}  // namespace

void restore(RunContext& run, LookedUp looked_up) {
  bool found = false;
  for (LastSteps last; const std::optional<SavedState> state = newest_for_all(run, looked_up, last);) {
    found = true;
    const train::Checkpoint& from = state->checkpoint;
    if (go_on_from(run, from)) {
      if (state->in_memory) {
        if (run.leads()) run.warn(fmt::format("going on from {}", from.path()));
        return;
      }
      run.summary.checkpoint = from.path();
      run.keeping.saved_step = run.trainer->steps_done();
      return;
    }
    (state->in_memory ? last.in_memory : last.on_disk) = from.state().step - 1;
  }
  if (run.leads()) {
    run.warn(fmt::format("{}: the run {}; it begins anew", run.folder.path,
                         found ? "has no other checkpoint" : "ended before its first checkpoint"));
    run.terminal.warn(resume_notes(run.folder, run.config, nullptr, run.trainer->options().plan.dtype));
  }
  begin_anew(run);
}

void begin_anew(RunContext& run) {
  const config::RunConfig& config = run.config;
  std::vector<std::string> notes = begin_from_first_state(config, *run.trainer, [&] {
    if (config.plan.objective.of_pairs())
      make_references(run.folder, config.train.eval_sequences, *run.trainer, *run.data);
  });
  const std::string& start = config.train.start;
  if (const std::string other = start.empty() ? "" : other_tokenizer(start, run.data->tokenizer); !other.empty())
    notes.push_back(other);
  if (!run.leads()) return;
  for (const std::string& note : notes) run.warn("train.start: " + note);
  if (const passes::Adapters& lora = config.plan.lora; lora.rank > 0) {
    if (const std::string why = train::why_no_adapter_files(config.model, lora); !why.empty())
      run.warn(fmt::format(
          "lora.targets: {}: `heddle convert --merge` can write this run's result, --adapter cannot", why));
  }
}

}  // namespace heddle::session

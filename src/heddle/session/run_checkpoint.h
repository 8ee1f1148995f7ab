// Writes a trainer's state to the checkpoints of its run, and finds those that a run may go on from.
//
// A run that goes on keeps the model, the seed, the token ids, their documents and the share of them held out. It
// also keeps the tokenizer (where both times there is one), the length of the sequences and how many a step takes.
// Everything else may change: number of steps, rates, ranks and their layout, microbatch, dtype of the kernels,
// where the data lies, and evaluation.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heddle/session/run_folder.h"
#include "heddle/train/trainer_checkpoint.h"

namespace heddle::session {

struct RunData;

/// The identity of data and tokenizer by content; every checkpoint has it.
std::map<std::string, std::string> identity_of(const RunData& data, const config::RunConfig& config);

/// The state of a checkpoint of the steps done besides its tensors, as far as the run knows it. `digest`: the
/// weights'; "": not taken.
train::CheckpointState state_of_run(const config::RunConfig& config, const std::map<std::string, std::string>& data,
                                    const train::Trainer& trainer, const std::string& digest);

/// Writes the checkpoint of the steps done and returns its path; every rank calls it. `data` is the identity.
std::string save_run(const RunFolder& folder, const config::RunConfig& config,
                     const std::map<std::string, std::string>& data, train::Trainer& trainer,
                     const std::string& digest);

/// The digest of the weights that the run's log has of a step; "": it has none, or can't be read, which `warnings`
/// then says.
std::string logged_digest(const RunFolder& folder, int64_t step, std::vector<std::string>& warnings);
/// Compares the digests of the weights and moments of a trainer that was restored from a checkpoint with the
/// checkpoint's. Where it has none, it takes the run's log (`logged`, the same on every rank). Returns the
/// difference, or "". All ranks call it together. It finds more than checksums do: bytes that were copied to a
/// wrong place, or changed on their way, and tensors that were changed together with their checksums.
std::string digest_mismatch(const train::Checkpoint& checkpoint, const std::string& logged,
                            train::Trainer& trainer);
/// A line where checkpoint and log both say a digest of the weights, and another; "": they agree, or one has none.
std::string other_log_note(const train::Checkpoint& checkpoint, const std::string& logged);

/// Restores the run's newest whole checkpoint from before the steps that were skipped in a row, and moves on behind
/// the data that it has seen since. Steps go on counting. Returns the checkpoint's step; where there is none,
/// returns none and leaves the run as it is. Every rank calls it.
std::optional<int64_t> return_to_checkpoint(const RunFolder& folder, train::Trainer& trainer);

/// ConfigError when what must be the same to go on from a checkpoint is not, or no step is left.
void check_goes_on(const train::Checkpoint& checkpoint, const RunFolder& folder, const config::RunConfig& config,
                   const std::map<std::string, std::string>& data, std::vector<std::string>& warnings);

/// Up to which step a state is looked for, in memory and on disk.
struct LastSteps {
  int64_t in_memory = std::numeric_limits<int64_t>::max(), on_disk = std::numeric_limits<int64_t>::max();
};
/// A state to go on from and where it lies.
struct SavedState {
  train::Checkpoint checkpoint;
  bool in_memory = false;
};
/// The newest state that opens, of memory and disk together, checked whole; none when there is none. ConfigError
/// when what must be the same is not, no step is left, or there is something on disk and nothing opens. `warnings`
/// gets what was passed over.
std::optional<SavedState> newest_state(const RunFolder& folder, const config::RunConfig& config,
                                       const std::map<std::string, std::string>& data,
                                       std::vector<std::string>& warnings, const LastSteps& last);

}  // namespace heddle::session

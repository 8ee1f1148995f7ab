// A trainer's state to the checkpoints of its run, and which of them a run may go on from.
//
// What must be the same when a run goes on: the model, the seed, the token ids, their documents and the share of
// them held out, the tokenizer (where both times there is one), the length of the sequences and how many a step
// takes. Everything else may change: number of steps, rates, ranks and their layout, microbatch, dtype of the
// kernels, where the data lies, what is looked at and when.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heddle/session/run_data.h"
#include "heddle/session/run_folder.h"
#include "heddle/train/trainer_checkpoint.h"

namespace heddle::session {

/// What identifies data and tokenizer by content; it stands in every checkpoint.
std::map<std::string, std::string> identity_of(const RunData& data, const config::RunConfig& config);

/// What a checkpoint of the steps done says besides its tensors, as far as the run knows it. `digest`: of the
/// weights;
/// "": not taken.
train::CheckpointState state_of_run(const config::RunConfig& config, const std::map<std::string, std::string>& data,
                                    const train::Trainer& trainer, const std::string& digest);

/// Writes the checkpoint of the steps done and returns its path; every rank calls it. `data` is the identity.
std::string save_run(const RunFolder& folder, const config::RunConfig& config,
                     const std::map<std::string, std::string>& data, train::Trainer& trainer,
                     const std::string& digest);

/// What is wrong where the weights of a trainer that was put where a checkpoint left it have another digest than
/// the checkpoint says, else ""; all ranks call it together. Beyond what checksums find: bytes that were copied to
/// a wrong place, or changed on their way.
std::string digest_mismatch(const train::Checkpoint& checkpoint, train::Trainer& trainer);
/// ConfigError there.
void check_digest(const train::Checkpoint& checkpoint, train::Trainer& trainer);

/// Puts the run where its newest whole checkpoint from before the steps that were skipped in a row left it, and on
/// behind the data that it has seen since: steps go on counting. Returns the checkpoint's step; none where there is
/// no such checkpoint, and the run is left as it is. Every rank calls it.
std::optional<int64_t> go_back(const RunFolder& folder, train::Trainer& trainer);

/// ConfigError when what must be the same to go on from a checkpoint is not, or no step is left.
void check_goes_on(const train::Checkpoint& checkpoint, const RunFolder& folder, const config::RunConfig& config,
                   const std::map<std::string, std::string>& data, std::vector<std::string>& warnings);

/// What lies in memory of the run, where it is newer than the newest checkpoint; looked at whole. ConfigError as
/// above.
std::optional<train::Checkpoint> newest_of_memory(const RunFolder& folder, const config::RunConfig& config,
                                                  const std::map<std::string, std::string>& data,
                                                  std::vector<std::string>& warnings);

/// The checkpoint to go on from, the newest whole one up to `last_step`; none when there is none. ConfigError
/// when what must be the same is not, or no step is left. `warnings` is told what was passed over.
std::optional<train::Checkpoint> checkpoint_to_go_on_from(const RunFolder& folder, const config::RunConfig& config,
                                                          const std::map<std::string, std::string>& data,
                                                          std::vector<std::string>& warnings, int64_t last_step);

}  // namespace heddle::session

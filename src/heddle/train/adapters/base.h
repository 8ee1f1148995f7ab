// The frozen weights beside a run's adapters. Its checkpoints keep the adapters alone, and say where the frozen
// weights came from and what they were. A run that goes on, evaluates or generates puts them together again.
#pragma once

#include <map>
#include <string>

#include "heddle/passes/options/adapters.h"
#include "heddle/train/trainer.h"

namespace heddle::train {

/// A checksum of all weights of a checkpoint or a released model's files: their names, types, shapes and bytes.
std::string digest_of_weights(const std::string& path);

/// A checkpoint's note on a trainer's adapters: rank, alpha, targets, whether it is rank-stabilized, and its base.
/// Empty where all weights are trained.
std::map<std::string, std::string> adapters_note(const Trainer& trainer);
/// The choices that such a note holds; those of no adapters for an empty one. ConfigError, with `place`, where it
/// is none.
passes::Adapters adapters_of(const std::map<std::string, std::string>& note, const std::string& place);
/// The place of the frozen weights by the note; "": drawn from the seed.
std::string base_path_of(const std::map<std::string, std::string>& note);

/// Puts the frozen weights that the note speaks of into a trainer with adapters; all ranks call it together.
/// ConfigError where the trainer's adapters are others, or the weights are not those that they were.
void restore_base(const std::map<std::string, std::string>& note, const std::string& place, Trainer& trainer);

}  // namespace heddle::train

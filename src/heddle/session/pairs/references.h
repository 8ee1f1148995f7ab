// Reference losses for preferences: the losses of all pairs of a run under the weights that it begins with. A run
// that trains adapters takes the frozen weights alone.
//
// The forward program of evaluation computes them once, before the first step. They stay in the run's folder,
// because a run that goes on no longer has the weights.
#pragma once

#include <cstdint>

#include "heddle/session/run_folder.h"
#include "heddle/train/step/preference.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

struct RunData;

/// Computes the losses of all training sequences and of the first `heldout` held-out ones. All ranks call it
/// together, with the weights of the beginning.
void make_references(const RunFolder& folder, int64_t heldout, train::Trainer& trainer, RunData& data);
/// Reads those of a run that goes on. ConfigError where there are none, or they are of other data.
void read_references(const RunFolder& folder, RunData& data);

/// Evaluates the first held-out pairs that have references, up to `heldout` sequences. All ranks call it together.
train::Preference look_at_pairs(int64_t heldout, train::Trainer& trainer, const RunData& data);

}  // namespace heddle::session

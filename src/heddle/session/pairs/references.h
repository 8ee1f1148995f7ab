// The losses of all pairs of a run under the weights that it begins with, to which preferences are held: of
// training from the frozen weights alone where adapters stand beside them. They are computed once, by the forward
// program of evaluation, before the first step, and stand in the run's folder, for a run that goes on no longer has
// the weights.
#pragma once

#include <cstdint>

#include "heddle/session/run_data.h"
#include "heddle/session/run_folder.h"
#include "heddle/train/step/preference.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

/// Of all training sequences and the first `heldout` held-out ones. All ranks call it together, with the weights of
/// the beginning.
void make_references(const RunFolder& folder, int64_t heldout, train::Trainer& trainer, RunData& data);
/// Those of a run that goes on. ConfigError where there are none, or they are of other data.
void read_references(const RunFolder& folder, RunData& data);

/// Of the first held-out pairs that have references, up to `heldout` sequences. All ranks call it together.
train::Preference look_at_pairs(int64_t heldout, train::Trainer& trainer, const RunData& data);

}  // namespace heddle::session

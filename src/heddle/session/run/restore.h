// The state from which a run takes its first step. All ranks call these together.
#pragma once

#include <optional>

#include "heddle/session/run/context.h"
#include "heddle/session/run_checkpoint.h"

namespace heddle::session {

/// Goes on from the newest state, in memory or on disk, that every rank can read and that is fit to go on from.
/// Where there is none it starts from the beginning and says so. `looked_up`: what rank 0 has found already, if it
/// has looked.
void restore(RunContext& run, std::optional<std::optional<SavedState>> looked_up);

/// Begins from the seed, or from the weights that the run starts from.
void begin_anew(RunContext& run);

}  // namespace heddle::session

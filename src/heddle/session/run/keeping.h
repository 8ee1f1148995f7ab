// The state that a run has saved, and how often it saves: as configured, or, with train.mtbf_hours, as its cost
// suggests.
#pragma once

#include <cstdint>

#include "heddle/session/agent/frequency.h"

namespace heddle::session {

struct RunContext;

struct Keeping {
  int64_t saved_step = -1;   // step of the last checkpoint on disk; -1: there is none
  int64_t digest_step = -1;  // the step of RunSummary::weights_digest
  int64_t every = 0;         // steps between two checkpoints on disk; 0: none but the last
  SnapshotFrequency costs;   // steps, copies in memory and checkpoints
};

/// Chooses how often from now on, as rank 0 has measured the costs, for all ranks; all call it together.
void choose_frequency(RunContext& run);

}  // namespace heddle::session

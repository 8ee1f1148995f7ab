// The lines "#SBATCH …" of a script: what Slurm would set for it.
#pragma once

#include <string_view>

#include "advisor/shell/state.h"

namespace heddle::advisor::shell {

/// Sets SLURM_NNODES, SLURM_NTASKS_PER_NODE, SLURM_GPUS_ON_NODE and the like where the lines name them and nobody
/// else has.
void set_of_slurm(std::string_view text, State& state);

}  // namespace heddle::advisor::shell

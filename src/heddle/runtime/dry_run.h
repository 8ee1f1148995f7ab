// What a walk without an executor asks for: the scratch that kernels want, and the rows that experts receive.
#pragma once

#include <string_view>

#include "heddle/simulate/recording.h"

namespace heddle::runtime {

/// Of every op of the program; `backend` as for kernels::select_kernel. InternalError when an op has no kernel.
simulate::ScratchBytes kernel_scratch(const ir::StepProgram& program, std::string_view backend);

/// Balanced: as many rows come in as a rank sends out, times `crowding`. How ranks stand on nodes is not known
/// here: the tokens that pass through are taken to be as many as its own, with each of their sums coming from
/// another rank.
simulate::RowsRead balanced_rows(const ir::StepProgram& program, double crowding = 1);

}  // namespace heddle::runtime

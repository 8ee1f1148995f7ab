// Inputs of a walk without an executor: the scratch that kernels want, and the rows that experts receive.
#pragma once

#include <string_view>

#include "heddle/simulate/recording.h"

namespace heddle::runtime {

/// Scratch of every op of the program, or of those that one rank runs; `backend` as in backends/backend.h.
/// InternalError when an op has no kernel. A build without the backend has none of its kernels: a program for
/// another machine is then counted without their scratch.
simulate::ScratchBytes kernel_scratch(const ir::StepProgram& program, std::string_view backend, int rank = -1);

/// The op whose counts one with a host stall copies for the host.
const ir::Op& shared_counts_of(const ir::Listing& listing, const ir::Op& to_host);
/// Rows that the host reads from output `output` of the copy: `crowding` times what comes in where as many come as
/// a rank sends out.
int64_t balanced_rows_of(const ir::Listing& listing, const ir::Op& counted, size_t output, double crowding);

/// Balanced: as many rows come in as a rank sends out, times `crowding`. The nodes of ranks are not known here. So
/// the tokens that pass through are taken to be as many as its own, each of their sums coming from another rank.
simulate::RowsRead balanced_rows(const ir::StepProgram& program, double crowding = 1);

}  // namespace heddle::runtime

// The checks that every program passes before it runs, and after every pass.
#pragma once

#include <functional>

#include "heddle/ir/program.h"

namespace heddle::ir {

/// One listing: inputs have names of their own, and every `load` names one of them. Every op's outputs are what its
/// definition infers. Every frame value, or each part of it, is written exactly once and before it is read, in
/// every outcome of the conditions (ir/outcomes). Phases only read what earlier phases (or their own) wrote.
/// Updates name persistent values, and nothing else writes them. An accumulator has one writer. InternalError
/// naming the op otherwise.
void verify(const Listing& listing);

/// All listings, and for each class of ranks: every (listing, microbatch) runs each phase it has exactly once (for
/// other purposes than training: on one microbatch). F comes before I before W, microbatches of a phase in
/// increasing order, receives before what reads them, the end last. Sends and receives of neighbouring ranks pair
/// up in order.
void verify(const StepProgram& program);

/// The ranks with which a rank communicates in a group, itself among them; none where it isn't of any such group.
using Members = std::function<std::vector<int>(const std::string& group, int rank)>;
/// Collectives of each channel come in one order on all ranks of its group, for every purpose, whichever streams
/// carry them. InternalError with the two ranks and the ops that differ.
void verify_channels(const StepProgram& program, const Members& members);

}  // namespace heddle::ir

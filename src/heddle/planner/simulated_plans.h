// Heddle on accelerators that are only described: its layers lowered for a search, and the best plans' whole step
// programs simulated.
#pragma once

#include <memory>

#include "heddle/search/lowered_blocks.h"
#include "heddle/search/search.h"

namespace heddle::planner {

/// For a job's model, type and sequence; null where Heddle can't train it.
std::unique_ptr<search::LoweredBlocks> lowered_blocks(const search::Job& job);

/// Simulates the step programs of the answer's best `most` plans and puts those that Heddle can run first, in the
/// order of their simulated steps (Ranked::simulated_step_s).
void simulate_best(search::Answer& answer, const search::Behaviour& behaviour, int most);

}  // namespace heddle::planner

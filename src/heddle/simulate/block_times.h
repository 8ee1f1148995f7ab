// A training step timed block by block, to tell plans apart: each block of a lowered program once, by the ops of
// its streams in their order; then the ranks' actions, which wait for what other ranks send. What a block leaves on
// other streams than the computation's runs beside the blocks after it. Takes about as long as a pass of lowering,
// where the simulator goes through every op of every microbatch.
#pragma once

#include <vector>

#include "heddle/plan/plan.h"

namespace heddle::simulate {

struct BlockTimes {
  double step_us = 0;
  double end_us = 0;            // of this, after the last backward of any rank
  std::vector<double> busy_us;  // of each pipeline rank: in blocks before the end
};

/// With as many rows for each rank's experts. InternalError when the program can't go on.
BlockTimes time_blocks(const ir::StepProgram& program, const passes::Durations& duration_us);

}  // namespace heddle::simulate

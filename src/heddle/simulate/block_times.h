// Times a training step block by block, to compare plans. Each block of a lowered program is timed once, by the ops
// of its streams in their order; then the ranks' actions, which wait for what other ranks send. Work of a block on
// other streams than the computation's runs beside the blocks after it. It takes about as long as a pass of
// lowering, where the simulator goes through every op of every microbatch.
#pragma once

#include <vector>

#include "heddle/plan/plan.h"

namespace heddle::simulate {

struct BlockTimes {
  double step_us = 0;
  double end_us = 0;            // the part of it after the last backward of any rank
  std::vector<double> busy_us;  // each pipeline rank's time in blocks before the end
};

/// Times the program with even rows for the experts of each rank. InternalError when the program can't go on.
BlockTimes time_blocks(const ir::StepProgram& program, const passes::Durations& duration_us);

}  // namespace heddle::simulate

// DualPipe: two copies of the model in opposite directions, half of the microbatches through each; in the steady
// state every forward is fused with a backward of the other direction.
//
// Source: DeepSeek-V3 Technical Report (arXiv 2412.19437), section 3.2.1; deepseek-ai/DualPipe. The upper half of
// the ranks mirrors the lower one; within a half, the phases are those of DualPipeV (schedule/dual_pipe_v.h) with
// P/2 ranks and m/2 microbatches a direction. Constraints: P and m even, m ≥ 2P. Peak: P + 1 microbatches of a
// rank's layers. Weights twice; their gradients are summed. Synchronous bubble where F = I: (P/2 − 1)(FB + B − 3W),
// a pair lasting FB.
#pragma once

#include "heddle/schedule/generators/outline.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

/// Throws ConfigError unless the constraints above hold.
Schedule dual_pipe(int ranks, int microbatches);
Outline dual_pipe_outline();

}  // namespace heddle::schedule

// DualPipeV and MindSpeed's variant of it: two stages a rank in the shape of a V. In the steady state every forward
// is fused with the backward of another microbatch, so that each hides the other's exchanges.
//
// Source: deepseek-ai/DualPipe, DualPipeV ("cut in half", after Sea AI Lab); MindSpeed, feature dualpipev. With
// n = P − r − 1, chunk 0 the stage r and chunk 1 the stage 2P − 1 − r, the order of rank r is:
//   F0 × 2n, (F0 F1) × (r+1), (I1 W1 F1) × n, ([F0|B1] [F1|B0]) × (m−2P+r+1), (B1 [F1|B0]) × n, (B1 B0) × (r+1),
//   (W I0) × n, W × (r+1)
// The last rank leaves its first pair apart, and the last r+1 backwards of (B1 B0) are input gradients only.
// Constraints: any P; below m = 2P it is made for 2P and trimmed (few pairs remain). Peak: P + ½ microbatches of a
// rank's layers. Weights once. Synchronous bubble where F = I, of one chunk's times, a pair lasting fb:
//   DualPipeV (P−1)(fb + b − 3w)
//   MindSpeed (P−1)(fb + b − w): the cool-down's backwards are whole, so that their activations go at once.
#pragma once

#include "heddle/schedule/generators/outline.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

/// Throws ConfigError unless ranks and microbatches are positive.
Schedule dual_pipe_v(int ranks, int microbatches);
/// DualPipeV without the split backward in the cool-down.
Schedule mindspeed_dual_pipe_v(int ranks, int microbatches);
Outline dual_pipe_v_outline();
Outline mindspeed_dual_pipe_v_outline();

}  // namespace heddle::schedule

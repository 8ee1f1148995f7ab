// ZB-V: two stages a rank in the shape of a V, backward split; every rank holds as much.
//
// Source: Pipeline Parallelism with Controllable Memory (arXiv 2405.15362), section 4 and appendix; the order as
// written down for PyTorch's ScheduleZBVZeroBubble. Rank r has the stages r (chunk 0) and 2P − 1 − r (chunk 1):
//   F0 × (2(P−r)−1), (F1 F0) × r, (F1 I1 W1) × (P−r), (F0 I0 W0 F1 I1 W1) …, (I0 I1) × r, (I0 W0) × (P−r), W1 …, W0
//   …
// Constraints: any P and m; below m = 2P − 1 it is made for 2P − 1 and trimmed. Peak: P microbatches of a rank's
// layers on every rank. Bubble at F = I = W: staggered 0, synchronous (P−1)F/2, the least a placement of two chunks
// allows. Weights once.
#pragma once

#include "heddle/schedule/generators/outline.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

/// Throws ConfigError unless ranks and microbatches are positive.
Schedule zb_v(int ranks, int microbatches);
Outline zb_v_outline();

}  // namespace heddle::schedule

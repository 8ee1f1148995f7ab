// V-Half and V-Min: two stages a rank in the shape of a V, less memory than 1F1B for some bubble.
//
// Source: Pipeline Parallelism with Controllable Memory (arXiv 2405.15362), section 3 (building blocks) and the
// appendix (squeezing, reordering). One microbatch's F0, F1, I1, I0 on rank r start at fixed slots, and the next
// microbatch follows six slots later, since it has six computations on a rank. The lifespans follow from the slots:
//   V-Min   r, 2P−1−r, 2P+d+r, 4P+d−1−r        d = 2 where 3 divides P, else 0
//   V-Half  2r, 3P−2−r, 3P+d−1+2r, 6P+d−2−r    d = 3 where P is even, else 0
// Each W takes the first gap after its I. Warm-up and cool-down of such a pattern have gaps; there, what can move
// to an earlier gap without more memory does, once before and once after all is pressed together. Constraints: any
// P and m; both assume F, I and W of about equal length (V-Min's bubble grows with m otherwise). Peak, in
// microbatches of a rank's layers: V-Half ⌊(P+2)/2⌋, V-Min ⌊(P+4)/3⌋. Synchronous bubble at F = I = W = 1, P = 4,
// 8, 16: V-Half 2.5, 8.5, 20.5; V-Min 5.5, 13.5, 29.5. Weights once.
#pragma once

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

/// Both throw ConfigError unless ranks and microbatches are positive.
Schedule v_half(int ranks, int microbatches);
Schedule v_min(int ranks, int microbatches);

}  // namespace heddle::schedule

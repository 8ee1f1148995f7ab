// ZB-H1 and ZB-H2, the handmade schedules of Zero Bubble (Qi et al., arXiv 2401.10241, section 2): 1F1B whose
// backward is split, so that weight gradients fill the bubble. Rank r runs a warm-up of forwards, then F and I in
// turn. Its j-th W comes right after its (j + lag)-th I, the last ones at the end.
//
//           warm-up        lag   peak activations       bubble
//   ZB-H1   P − 1 − r       r    as 1F1B on rank 0      (P − 1)(F + I − W)
//   ZB-H2   2(P − 1 − r)   2r    about twice 1F1B's     staggered (P − 1)(F + I − 2W), synchronous ≥ (P − 1)F
//
// The peak of rank r holds P − r (ZB-H2: 2P − 1 − 2r) whole microbatches and, of `lag` more, what only W reads.
#pragma once

#include "heddle/schedule/generators/outline.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

/// Any number of microbatches; the bubbles above are reached from P (ZB-H2: 2P − 1) on.
Schedule zb_h1(int ranks, int microbatches);
Schedule zb_h2(int ranks, int microbatches);
Outline zb_h1_outline();
Outline zb_h2_outline();

}  // namespace heddle::schedule

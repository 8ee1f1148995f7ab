// 1F1B (PipeDream-flush; Narayanan et al., arXiv 2104.04473): rank r of P runs P − 1 − r forwards, then one forward
// and one backward in turn, then drains. Bubble (P − 1)(F + B), peak min(P − r, m) microbatches.
#pragma once

#include "heddle/schedule/generators/outline.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

/// Any number of ranks and microbatches; with fewer microbatches than ranks the pipeline never fills.
Schedule one_f_one_b(int ranks, int microbatches);
Outline one_f_one_b_outline();

}  // namespace heddle::schedule

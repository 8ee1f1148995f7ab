// GPipe (Huang et al., arXiv 1811.06965): all forwards, then all backwards. The simplest order and the hungriest:
// every rank holds all m microbatches. Bubble (P − 1)(F + B).
#pragma once

#include "heddle/schedule/generators/outline.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

/// Any number of ranks and microbatches. The backwards run in increasing order of microbatches.
Schedule gpipe(int ranks, int microbatches);
Outline gpipe_outline();

}  // namespace heddle::schedule

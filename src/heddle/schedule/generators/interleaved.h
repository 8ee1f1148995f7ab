// Interleaved 1F1B, also called VPP (Narayanan et al., arXiv 2104.04473): each rank holds `chunks` stages, P stages
// apart. The pipeline is filled with chunks, so the bubble shrinks to (P − 1)(F + B) / v for v times the messages.
//
// A rank's forwards go through the microbatches in groups of G. Chunk 0 of the whole group comes first, then chunk
// 1, and so on; the last group may be smaller. The backwards do the same with the chunks reversed. Rank r runs
// 2(P − 1 − r) + (v − 1)G forwards, then one forward and one backward in turn. Peak of rank 0 with G = P:
// P + (P − 1)/v microbatches.
//
// The fused kind runs one forward more in its warm-up, so that a forward never needs the backward beside it. It
// joins both to a pair [F|B] whose exchanges hide behind each other's compute. It holds one chunk more.
#pragma once

#include "heddle/schedule/generators/outline.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

/// ranks ≥ 1, chunks ≥ 2 (with one it is 1f1b), group ≥ ranks, 0 for ranks. Where the last group would be smaller
/// than ranks, which can't go on, the schedule is made for more microbatches and trimmed.
Schedule interleaved(int ranks, int chunks, int microbatches, int group = 0);
/// Interleaved with pairs; chunks ≥ 1: with one chunk, 1F1B with a double warm-up.
Schedule interleaved_fused(int ranks, int chunks, int microbatches, int group = 0);
Outline interleaved_outline();
Outline interleaved_fused_outline();

}  // namespace heddle::schedule

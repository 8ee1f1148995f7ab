// What the blocks that make lists share: a block scans what it lists in order.
#pragma once

#include "heddle/kernels/cuda/experts/routing_kernels.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

/// How many threads before this one say yes, and how many of all. `votes`: shared, one a warp.
HEDDLE_DEVICE int count_before(bool yes, unsigned* votes, int& all) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const unsigned vote = __ballot_sync(kFullWarp, yes);
  if (lane == 0) votes[warp] = vote;
  __syncthreads();
  int before = __popc(vote & ((1u << lane) - 1u));
  all = 0;
  for (int w = 0; w < kListThreads / kWarp; ++w) {
    if (w < warp) before += __popc(votes[w]);
    all += __popc(votes[w]);
  }
  __syncthreads();
  return before;
}

}  // namespace heddle::kernels::cuda

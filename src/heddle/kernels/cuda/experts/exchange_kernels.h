// Kernels of collectives for rows between their exchanges.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

struct RankSumArgs {
  const void* parts;
  void* out;
  int64_t stride, ranks, count;
};
/// out_i = Σ_r in order parts[r·stride + i], in A, rounded once.
template <class X, class A>
HEDDLE_KERNEL void rank_sum(RankSumArgs args);

struct CutArgs {
  void *whole, *parts;
  int64_t rows, width, ranks;  // width in units
  bool join;
};
template <class Unit>
HEDDLE_KERNEL void cut_columns(CutArgs args);

struct LocalOffsetsArgs {
  const int32_t* n_2GP;
  int32_t* offsets;
  int64_t G, P;
};
HEDDLE_KERNEL void local_offsets(LocalOffsetsArgs args);

}  // namespace heddle::kernels::cuda

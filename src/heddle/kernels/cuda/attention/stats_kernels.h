// Kernels around a library's attention: its statistics lie [B, h, S] where ours are rows of heads, and in context
// parallelism its result is a part. B sequences, S rows of each here, h heads, v or d numbers of a head. A part is
// of the rows [first, first + rows) of each sequence. Its statistics are [B, h, rows].
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

struct StatsArgs {
  const float* from;
  float* to;
  int64_t B, S, h, first, rows;
};
/// stats = lse of those rows, or lse = stats.
HEDDLE_KERNEL void stats_of_lse(StatsArgs args);
HEDDLE_KERNEL void lse_of_stats(StatsArgs args);

struct JoinArgs {
  const Bf16* o_part;  // [B·S, h·v], of which other rows than the part's are not read
  const float* stats;
  const float *o_before, *lse_before;  // [B·S, h·v], [B·S, h]; or null: this part is the first
  float *o, *lse;
  int64_t B, S, h, v, first, rows;  // v: a multiple of 8
};
/// o and lse of the parts before and this one. A block a row.
HEDDLE_KERNEL void join_part(JoinArgs args);

struct AddPartArgs {
  const Bf16* part;              // [B·S, W], likewise
  const float* before;           // or null
  void* to;                      // f32, or bf16 where `wide` is not set
  int64_t B, S, W, first, rows;  // W: a multiple of 8
  bool wide;
};
/// to = before + part.
HEDDLE_KERNEL void add_part(AddPartArgs args);

}  // namespace heddle::kernels::cuda

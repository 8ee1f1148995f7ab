// Rotary positions and the assembly of MLA's queries, keys and values. T tokens, h heads, n part without rope, r
// rope dim, v value dim, S sequence length; a table row is r/2 cosines, then r/2 sines.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

/// Rope dim, at most.
constexpr int kWidestRope = 512;

struct PositionSizes {
  int64_t T, h, n, r, v, S;
  bool interleaved;
};

struct PositionArgs : PositionSizes {
  const void *q, *kv, *kr;  // [T,h·(n+r)], [T,h·(n+v)], [T,r]; q, or kv and kr, may be null
  const float* table_Sr;    // null: nothing is rotated
  void *q_out, *k, *value;  // [T,h·(n+r)] twice, [T,h·v]
  int64_t behind;           // elements of a head of q after the rotated ones; 0 where there is a kv
  bool inverse;
};
/// Rotates the rope part of every head of q and kr, and assembles k = (k_nope, kr), v. A block a token.
template <class X>
HEDDLE_KERNEL void position(PositionArgs args);

struct PositionGradArgs : PositionSizes {
  const void *dk, *dvalue;
  const float* table_Sr;  // null: nothing is rotated
  void *dkv, *dkr;
};
/// The adjoint of the assembly: dkv, and dkr summed over heads in increasing order, rotated back, rounded once.
template <class X>
HEDDLE_KERNEL void position_dgrad(PositionGradArgs args);

}  // namespace heddle::kernels::cuda

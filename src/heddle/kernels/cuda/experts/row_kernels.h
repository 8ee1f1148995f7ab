// Rows gathered, scattered and summed: embedding, and the ways of rows to their experts and back.
// T tokens, H columns, k experts a token, R rows: T·k, or with a capacity of experts (ops/experts/capacity.cpp)
// their places. row_of[t,j] −1: no row, which adds nothing.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

/// Summed rows of a token, at most: in registers, and at all. See leaves.h.
constexpr int kFewLeaves = 8, kMostLeaves = 64;

struct GatherArgs {
  const void* from;
  const int32_t* index_R;  // a row of `from`; below 0: zeros; from `limit` on: NaN
  void* to_RH;
  int64_t R, H, limit;
  int64_t each;  // the index is of a slot: its row is index ÷ each
};
/// to_r = from[index_r ÷ each]. A warp a row, of 256 threads a block; blocks go on to further rows.
template <class X>
HEDDLE_KERNEL void gather_rows(GatherArgs args);

struct EmbeddingGradArgs {
  const void* dx_TH;
  const int32_t* ids_T;
  float* acc_VH;
  int64_t T, V, H;
};
/// acc[ids_t] += dx_t in increasing t. A block a token; that of an id's first token takes all of them.
template <class X>
HEDDLE_KERNEL void embedding_wgrad(EmbeddingGradArgs args);

struct TreeSumArgs {
  const void* rows;
  const float* g_Tk;  // null: 1
  const int32_t* row_of_Tk;
  const int32_t* experts_Tk;
  const void* residual_TH;  // or null
  void* to_TH;
  int64_t T, H, k;
};
/// to_t = Σ_j g[t,j]·rows[row_of[t,j]] in the tree of device/merge_tree.h over experts, then + residual. A block a
/// token, of `most` leaves at most: kFewLeaves or kMostLeaves.
template <class X, int most>
HEDDLE_KERNEL void tree_sum(TreeSumArgs args);

struct WeighArgs {
  const void *d_rows, *rows;  // d_rows: of token t, or of row r where row_of is null
  const float* g;             // [T, k], or [R]
  const int32_t* row_of_Tk;
  void* dy_RH;
  float* dg;
  unsigned char* taken_R;  // becomes 1 of rows that have a slot; or null
  int64_t T, H, k;         // without row_of: k = 1, T = R
};
/// dy_r = g·d, dg = d·y_r. A block a (token, slot).
template <class X>
HEDDLE_KERNEL void weigh_dgrad(WeighArgs args);

struct UnitGateArgs {
  float* g;
  int64_t count;
};
/// A thread a gate.
HEDDLE_KERNEL void unit_gates(UnitGateArgs args);

struct ZeroExpertArgs {
  const void* x_TH;
  const void* dy_TH;  // null: y is made, else both gradients
  const float* g_Tk;
  const int32_t* experts_Tk;
  void* to_TH;  // y, or dx
  float* dg_Tk;
  int64_t T, H, k;
  int32_t first;
};
/// z_t = Σ_j g[t,j] over experts from `first` on. y_t = z_t·x_t; or dx_t = z_t·dy_t and dg[t,j] = dy_t·x_t of these
/// experts, else 0. A block a token.
template <class X>
HEDDLE_KERNEL void zero_experts(ZeroExpertArgs args);

constexpr int64_t kClearedRows = 64;  // of a block
struct ClearArgs {
  const unsigned char* taken_R;
  void* rows_RH;
  int64_t R, H;
};
/// Zeros in the rows that nobody has taken.
template <class X>
HEDDLE_KERNEL void clear_others(ClearArgs args);

}  // namespace heddle::kernels::cuda

// Recurrences along the sequence, convolutions, decays and gated norms (ops/recurrence.cpp).
//
// A warp holds kColumns columns of a head's state, dk × kColumns numbers, in registers: a lane the key channels
// lane, lane + kWarp, …. Rows go one after the other. Backward a block holds a whole head, so that sums over
// columns stay in it.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int kRecurThreads = 128;
constexpr int kRecurWarps = kRecurThreads / kWarp;  // of a block, forward
constexpr int kColumns = kWarp / 8;                 // of a warp
constexpr int kMostKeyChannels = 256;
constexpr int kMostValueChannels = 128;  // backward: a warp for kColumns of them, 1,024 threads at most
constexpr int kKeyRuns = kMostKeyChannels / kWarp;
constexpr int kRecurRun = 64;  // rows between states that the backward keeps

struct RecurArgs {
  const void *d_o, *q, *k, *v;     // X [T,h·dv], [T,hk·dk], [T,hk·dk], [T,h·dv]
  const float* decay;              // [T,h] or [T,h·dk] or null
  const void* beta;                // [T,h] or null
  const float* skip;               // of this rank's heads, or null
  const int32_t *starts, *places;  // places: rows are those of a cache
  const float *before, *behind;  // [sequences,all_heads,dk,dv] or null: states ahead of the rows, gradients behind
  void* o;                       // X [T,h·dv]
  float* states;                 // [sequences,h,dk,dv] of a cache
  int64_t rows, sequences, h, hk, dk, dv, S, all_heads;
  float scale, epsilon, slopes;  // slopes: the factor, 0: none
  float top;                     // of beta by a sigmoid: the factor on it
  int64_t slope_heads, first_head;
  bool delta, normed, sigmoid, wide_beta, by_channel;
  // A summary, and the gradient of states before pieces
  float *transition, *update;  // [sequences,all_heads,width], [sequences,all_heads,dk,dv]
  int64_t width;
  // Backward
  void* d_v;
  float* d_decay;
  void* d_beta;
  float* kept;             // [sequences·h, ceil(S ÷ 64), dk·dv]
  float* run;              // [sequences·h, 64, dk·dv]
  float *q_rows, *k_rows;  // [T,h,dk]: of the normed, scaled ones
  float* skip_parts;       // [sequences,h]
};
/// A block a sequence and head, and kRecurWarps·kColumns columns.
template <class X>
HEDDLE_KERNEL void recur_forward(RecurArgs args);
/// A block a sequence and head, of a warp for each kColumns columns; shared: a row of dk numbers a warp.
template <class X>
HEDDLE_KERNEL void recur_backward(RecurArgs args);
/// As forward, over all heads; by the delta rule dk more columns are the transition.
template <class X>
HEDDLE_KERNEL void recur_summaries(RecurArgs args);
template <class X>
HEDDLE_KERNEL void recur_state_gradients(RecurArgs args);

struct ScanArgs {
  const float *transition, *update;
  float* states;
  int64_t heads, pieces, dk, dv, width;
  bool reverse;
};
/// A block a sequence, head (blocks_x) and column (blocks_y).
HEDDLE_KERNEL void scan_pieces(ScanArgs args);

struct PieceArgs {
  const void* x;
  void* y;
  int64_t C, rows, count, pieces, made;  // made: rows of y
  int64_t own[2];                        // numbers of this rank's pieces
  int64_t S;
};
/// A thread an element of y.
template <class X>
HEDDLE_KERNEL void take_ends(PieceArgs args);
template <class X>
HEDDLE_KERNEL void take_before(PieceArgs args);
HEDDLE_KERNEL void sum_behind(PieceArgs args);

struct RecurKeyArgs {
  const void* x;      // X [T,hk·dk]
  const float* rows;  // [T,h,dk]
  void* dx;
  int64_t T, h, hk, dk;
  float scale, epsilon;
  bool normed;
};
/// Sums over the value heads of a key head, through the norm; a warp a row and key head.
template <class X>
HEDDLE_KERNEL void recur_keys(RecurKeyArgs args);

struct ConvArgs {
  const void *dy, *x;
  const float *weight, *bias;  // of this rank's channels: [C,K], [C] or null
  const int32_t *starts, *places;
  void *y, *dx;
  void* tails;          // X [sequences,(K−1)·D·C]
  const void* before;   // X [sequences·(K−1)·D,C] or null
  const float* behind;  // [sequences·min((K−1)·D,S),C] or null
  float* d_before;
  float *weight_parts, *bias_parts;  // [ceil(T ÷ kConvRows)][C·K], [..][C]
  int64_t T, C, K, S, sequences;
  int64_t D;  // rows from one that a kernel sees to the next
  bool silu;
};
constexpr int kConvRows = 64;
constexpr int kMostTaps = 8, kMostKept = 32;  // rows that a kernel sees, and rows before its own that it reaches
/// A thread an element.
template <class X>
HEDDLE_KERNEL void conv_forward(ConvArgs args);
template <class X>
HEDDLE_KERNEL void conv_backward(ConvArgs args);
/// A thread an element of what lies before the pieces.
template <class X>
HEDDLE_KERNEL void conv_before(ConvArgs args);
/// A thread a channel and kConvRows rows (blocks_y).
template <class X>
HEDDLE_KERNEL void conv_sums(ConvArgs args);
/// A thread a sequence and channel. kMost: the rows before its own are as many at most.
template <class X, int kMost>
HEDDLE_KERNEL void conv_cached(ConvArgs args);

struct DecayArgs {
  const void* x;  // X [T,C]
  const float *a_log, *bias;
  float *decay, *step;
  const float *d_decay, *d_step;
  void* dx;
  float *a_parts, *bias_parts;  // [ceil(T ÷ kConvRows)][C]
  float *a_columns, *d_a;       // [C], [heads]
  int64_t T, C, run;
  float least, most, bound;  // bound 0: none
};
/// A thread an element; a thread a column and kConvRows rows (blocks_y); a thread a head.
template <class X>
HEDDLE_KERNEL void decay_forward(DecayArgs args);
template <class X>
HEDDLE_KERNEL void decay_backward(DecayArgs args);
HEDDLE_KERNEL void decay_heads(DecayArgs args);

struct GatedNormArgs {
  const void *dy, *x, *gate;
  const float* g;
  void *y, *dx, *d_gate;
  float* rstd;
  float* parts;  // [ceil(T ÷ kConvRows)][G]
  int64_t T, C, run, G;
  float epsilon;
  bool gate_first, sigmoid;
};
/// A warp a norm; a thread a gain and kConvRows rows (blocks_y).
template <class X>
HEDDLE_KERNEL void gated_norm_forward(GatedNormArgs args);
template <class X>
HEDDLE_KERNEL void gated_norm_backward(GatedNormArgs args);
template <class X>
HEDDLE_KERNEL void gated_norm_sums(GatedNormArgs args);

}  // namespace heddle::kernels::cuda

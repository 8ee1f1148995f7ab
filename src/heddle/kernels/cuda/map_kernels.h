// Element-wise kernels over rows, and sums over rows. T rows, W columns of the output.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

enum class Map {
  silu,
  silu_dgrad,
  multiply,
  multiply_dgrad,
  gelu,
  gelu_dgrad,
  swiglu,
  swiglu_dgrad,
  add,
  add_bias,
  scale,
  soft_cap,
  soft_cap_dgrad,
  clip,
  clip_dgrad,
  squared_relu,
  squared_relu_dgrad
};

struct MapArgs {
  const void* in[3];  // in the op's order, without the bias
  const float* bias;  // or null
  void* out[2];
  float* bias_parts;  // [ceil(T ÷ kMapRows)][columns of the bias]: Σ of the gradient before it is rounded; or null
  int64_t T, W;
  float factor;  // of `scale`, or the cap of `soft_cap`, or the limit of `clip`
  bool tanh;     // of `gelu`
  bool below;    // of `clip`
};
/// Rows that one thread takes; partial sums of a bias' gradient are over so many.
constexpr int kMapRows = 16;
constexpr int kMapThreads = 128;

template <class X, Map map>
HEDDLE_KERNEL void map_rows(MapArgs args);

struct GateArgs {
  const void *dy, *x;  // dy: null forward
  const void* gate_TG;
  void *y, *dgate_TG;  // y or dx; dgate: null forward
  int64_t gates, run;  // T·G gates, each of a run of so many numbers
  bool softplus;       // ln(1 + e^gate) in place of σ
};
/// y = x·σ(gate), or its gradients dx = dy·σ, dgate = Σ_run dy·x·σ'. `lanes` threads a gate: 1 or a warp.
constexpr int kGateThreads = 256;
template <class X, int lanes>
HEDDLE_KERNEL void sigmoid_gates(GateArgs args);

struct ScaleByArgs {
  const void* x;
  const float* s;
  const int32_t* index;  // of s, for each number; null: each of s is of a run
  void* y;
  int64_t count, run;
};
template <class X>
HEDDLE_KERNEL void scale_by(ScaleByArgs args);

struct ScaleSumArgs {
  const void *dy, *x;
  const int32_t* index;
  float* acc;
  int64_t count;
  bool add;  // to what is there
};
/// acc_n = Σ dy·x over the numbers whose index is n. A block a sum.
constexpr int kScaleSumThreads = 256;
template <class X>
HEDDLE_KERNEL void scale_by_sums(ScaleSumArgs args);

struct ColumnSumArgs {
  const float* parts_PW;
  float* out_W;
  int64_t P, W;
  bool add;  // to what is there
};
/// out_w = Σ_p parts[p, w], a fixed order. Blocks of kColumnSumWidth columns.
constexpr int kColumnSumWidth = 32, kColumnSumGroups = 8;
HEDDLE_KERNEL void column_sum(ColumnSumArgs args);

struct ColumnPartsArgs {
  const void* rows_TW;
  float* parts;  // [ceil(T ÷ kMapRows)][W]
  int64_t T, W;
};
/// Sums over kMapRows rows at a time, for column_sum.
template <class X>
HEDDLE_KERNEL void column_parts(ColumnPartsArgs args);

struct AccumulateArgs {
  const void* p;
  void* acc;
  int64_t count;
  bool overwrite;
};
/// acc += p; P and A are the types of both.
template <class P, class A>
HEDDLE_KERNEL void accumulate(AccumulateArgs args);

struct CastArgs {
  const void* from;
  void* to;
  int64_t count;
};
template <class From, class To>
HEDDLE_KERNEL void cast(CastArgs args);

struct CopyColumnsArgs {
  const void* from;  // null: zeros
  void* to;
  int64_t from_pitch, to_pitch, width, T;  // in units of Unit
};
/// A block of columns, between matrices of any pitch. Unit: uint16_t … uint4 wide, whatever divides all of them.
template <class Unit>
HEDDLE_KERNEL void copy_columns(CopyColumnsArgs args);

}  // namespace heddle::kernels::cuda

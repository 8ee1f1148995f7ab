// Biases of experts, their gradients, and clamped SwiGLU. T tokens, k experts a token, E experts; R rows, those of
// expert e from offsets[e] to offsets[e + 1]; N, H, F columns.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

/// Rows that a block takes.
constexpr int kBiasRows = 16;
constexpr int kBiasThreads = 128;

struct ExpertBiasArgs {
  const void* x_RN;
  const float *bias_EN, *copies_CN;  // of `own` experts, and of copies behind them
  const int32_t* offsets;
  void* y_RN;
  int64_t R, N, own, experts;  // those with copies; rows behind the last expert's may have any bias
};
/// y_r = x_r + bias of the row's expert. Blocks of kBiasThreads packs by kBiasRows rows.
template <class X>
HEDDLE_KERNEL void add_expert_bias(ExpertBiasArgs args);

struct ExpertBiasSumArgs {
  const void* dy_RN;
  const int32_t* first;  // sum i is over rows first[i] to first[i + 1]
  float* sums;           // [·, N]
  int64_t N;
  bool add;  // to what is there
};
/// Sums over rows, in their order. Blocks of kBiasThreads packs by one a sum.
template <class X>
HEDDLE_KERNEL void sum_expert_rows(ExpertBiasSumArgs args);

struct GatedBiasArgs {
  const float* g_Tk;
  const int32_t* experts_Tk;
  const float* bias_EH;
  void* y_TH;
  int64_t T, k, H;
};
/// y_t = Σ_j g[t,j]·bias of expert j, in increasing j. A block a token.
template <class X>
HEDDLE_KERNEL void gated_bias(GatedBiasArgs args);

struct GatedBiasGradArgs {
  const void* dy_TH;
  const float* g_Tk;  // of sums
  const int32_t* experts_Tk;
  const float* bias_EH;  // of dot products
  float* to;             // dg [T, k], or acc [E, H]
  int64_t T, k, H;
  bool add;
};
/// dg[t,j] = dy_t · bias of expert j. A block a slot.
template <class X>
HEDDLE_KERNEL void gated_bias_dots(GatedBiasGradArgs args);
/// acc_e (+)= Σ g·dy over the tokens that chose e, in increasing token. Blocks of kBiasThreads packs by one an
/// expert.
template <class X>
HEDDLE_KERNEL void gated_bias_sums(GatedBiasGradArgs args);

struct ClampedArgs {
  const void* u;          // [R, 2F]
  const float* bias_E2F;  // or null, and so are the offsets
  const float* copies_C2F;
  const int32_t* offsets;
  const void* da_RF;  // of the gradient
  void* to;           // a [R, F], or du [R, 2F]
  int64_t R, F, own, experts;
  float alpha, limit;
};
/// (gate, up) = u + bias, g = min(gate, l), w = up within ±l: a = g·σ(αg)·(w + 1). Blocks as of add_expert_bias.
template <class X>
HEDDLE_KERNEL void clamped_swiglu(ClampedArgs args);
template <class X>
HEDDLE_KERNEL void clamped_swiglu_dgrad(ClampedArgs args);

}  // namespace heddle::kernels::cuda

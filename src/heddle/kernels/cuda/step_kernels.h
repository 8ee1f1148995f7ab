// The end of a step: gradient norms, clipping, AdamW; sums of numbers in f64; exact sums; ids.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

/// Accumulators of one parameter, at most.
constexpr int kMostUses = 16;

struct Uses {
  const void* of[kMostUses];
  int32_t count;
};

struct SquareSumArgs {
  Uses acc;
  double* parts;  // one a block
  int64_t count;
};
/// Elements of a block: fixed, so that the sum is the same on every device.
constexpr int64_t kSquareBlock = 32768;
HEDDLE_KERNEL void square_sum(SquareSumArgs args);

struct SumArgs {
  const double* parts;
  double* sum;
  int64_t count;
};
/// One block of kSumThreads.
constexpr int kSumThreads = 256;
HEDDLE_KERNEL void sum_doubles(SumArgs args);

struct PartsArgs {
  Uses parts;
  double* sum;       // elements; of the norm: one number
  int64_t elements;  // of each part
  bool first;        // the sum starts from nothing
  bool exact;        // of the norm: parts are limbs of exact squares
};
/// sum += parts, element by element, in order.
HEDDLE_KERNEL void sum_parts(PartsArgs args);
/// sum += the squares that parts stand for, in order.
HEDDLE_KERNEL void add_norm_parts(PartsArgs args);

struct NormEndArgs {
  const double* sum;
  double *norm, *clip;
  double max_norm;
};
HEDDLE_KERNEL void grad_norm(NormEndArgs args);

struct SkipOutlierArgs {
  const double *norm, *clip, *hyper, *limits, *loss;
  double *factor, *rates, *skipped;
};
HEDDLE_KERNEL void skip_outlier(SkipOutlierArgs args);

struct PostValidationArgs {
  const double *norm, *clip;
  double* before;
  int *failed, *attempt;
  bool guessed, attempts;
};
HEDDLE_KERNEL void post_validation(PostValidationArgs args);

struct AdamwArgs {
  const double *clip, *hyper;
  Uses acc;
  float *p, *m, *v;
  uint16_t* low;  // of a split master, whose upper half is `copy`; or null, as is then p
  Bf16* copy;     // or null
  float* copy_wide;
  int64_t count;
  float beta1, beta2, rest1, rest2, epsilon, decay;
};
/// The copy is made of the master even where clip is 0 and nothing moves. v of a split master has a sign: see
/// base/split_float.h.
HEDDLE_KERNEL void adamw(AdamwArgs args);

struct AverageArgs {
  const double* clip;
  const float* master;
  float* average;
  int64_t count;
  float share;
};
/// average += share·(master − average), unless clip is 0.
HEDDLE_KERNEL void average_master(AverageArgs args);

struct GridArgs {
  const float* partial;
  double* sum;
  int64_t count;
  bool overwrite;
};
/// sum (+)= partial on the grid of kernels/exact_grid.h.
HEDDLE_KERNEL void add_on_grid(GridArgs args);

struct RoundArgs {
  Uses sums;
  float* g;
  int64_t count;
};
HEDDLE_KERNEL void round_gradient(RoundArgs args);

struct ExactSquareArgs {
  const float* g;
  unsigned long long* parts;  // three words a block: low, high, whether some square was too large
  double* limbs;              // of the last launch, one block
  int64_t count;              // of g, or of parts
};
HEDDLE_KERNEL void exact_squares(ExactSquareArgs args);
HEDDLE_KERNEL void exact_limbs(ExactSquareArgs args);

struct SegmentsArgs {
  const int32_t *offsets, *n;  // n: rows received by [1, source, expert], or null
  int32_t* first;              // [E·sources + 1]: where rows of (expert, source) begin
  int64_t experts, sources;
};
HEDDLE_KERNEL void segments(SegmentsArgs args);

struct ShiftIdsArgs {
  const int32_t* ids;
  int32_t* to;
  int64_t count;
  int32_t first, size, outside;
};
HEDDLE_KERNEL void shift_ids(ShiftIdsArgs args);

}  // namespace heddle::kernels::cuda

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

/// Parameters that one launch takes at most: what is said of them is an argument of the kernel, of at most 4 KiB.
constexpr int kMostParts = 64;

/// The blocks of a grid dealt out to parts: those of part i are first[i] .. first[i + 1].
struct PartBlocks {
  int32_t parts;
  int32_t first[kMostParts + 1];
};

struct SquareSumArgs {
  Uses acc;
  double* parts;  // one a block
  int64_t count;
};
/// Elements of a block: fixed, so that the sum is the same on every device.
constexpr int64_t kSquareBlock = 32768;
HEDDLE_KERNEL void square_sum(SquareSumArgs args);

/// Square sums of many parameters, blocks of each as if it were alone.
struct SquareSumsArgs {
  PartBlocks blocks;
  const void* acc[kMostParts];
  int64_t count[kMostParts];
  double* parts;  // one a block
};
HEDDLE_KERNEL void square_sums(SquareSumsArgs args);

struct SumArgs {
  const double* parts;
  double* sum;
  int64_t count;
};
/// One block of kSumThreads.
constexpr int kSumThreads = 256;
HEDDLE_KERNEL void sum_doubles(SumArgs args);

/// One block a part: the sum of those that stand at its blocks' places.
struct SumsArgs {
  PartBlocks blocks;
  const double* parts;
  double* sum[kMostParts];
};
HEDDLE_KERNEL void sums_of_doubles(SumsArgs args);

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

/// How m and v are kept: as f32, as bf16, or as a byte and a bf16 (ops/moment_byte.h).
enum class MomentForm : uint8_t { wide, rounded, bytes };
struct AdamwRule {
  const double *clip, *hyper;
  float beta1, beta2, rest1, rest2, epsilon, decay;
  bool splits;     // the master is the copy, which is bf16, and its lower halves
  bool wide_copy;  // the copy is f32, not bf16
  MomentForm moments;
};
struct AdamwPart {
  void* master;  // f32; of a split one the lower halves, u16
  void *m, *v;   // as the rule says
  void* copy;    // or null
  int64_t count;
};
struct AdamwArgs {
  AdamwRule rule;
  Uses acc;
  AdamwPart part;
};
/// The copy is made of the master even where clip is 0 and nothing moves. v of a split master has a sign: see
/// base/numbers/split_float.h. A block is of 256 threads of eight elements.
HEDDLE_KERNEL void adamw(AdamwArgs args);

/// AdamW of many parameters, by blocks of 256 threads of kPack elements each.
struct AdamwManyArgs {
  AdamwRule rule;
  PartBlocks blocks;
  const void* acc[kMostParts];
  AdamwPart part[kMostParts];
};
HEDDLE_KERNEL void adamw_many(AdamwManyArgs args);

struct AverageArgs {
  const double* clip;
  const float* master;
  float* average;
  int64_t count;
  float share;
};
/// average += share·(master − average), unless clip is 0.
HEDDLE_KERNEL void average_master(AverageArgs args);

/// Averages of many parameters, by blocks of 256 threads and kAverageBlock elements.
struct AveragesArgs {
  const double* clip;
  float share;
  PartBlocks blocks;
  const float* master[kMostParts];
  float* average[kMostParts];
  int64_t count[kMostParts];
};
constexpr int64_t kAverageBlock = 2048;
HEDDLE_KERNEL void average_masters(AveragesArgs args);

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

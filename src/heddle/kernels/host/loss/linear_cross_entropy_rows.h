// Work of the fused head on rows of logits and of gradients between its products: see linear_cross_entropy.cpp.
#pragma once

#include <cstdint>

#include "heddle/base/dtype.h"

namespace heddle::kernels::host {

/// Logits are smaller than this.
constexpr float kMostLogit = 0x1p21f;

/// The largest of `count` >= 1 logits.
float largest_logit(const float* logits, int64_t count);

/// Sum and largest logit of some columns of a row.
struct RowShare {
  float sum;
  float largest;
};
/// out[i] = e^logits[i] · 2^-power rounded to bf16 or f32 (nothing where `out` is null), and the sum of what is not
/// yet rounded. All bits but the exponent are independent of `power`. What is below 2^-120 is raised to it. Garbage
/// where a logit is beyond power·ln 2 + 87 or kMostLogit: `largest` tells.
RowShare exponentials(const float* logits, int64_t count, int32_t power, void* out, Dtype out_dtype);

/// out[i] = factor · in[i], rounded to out's type (bf16 or f32).
void scale_row(const void* in, Dtype in_dtype, int64_t count, float factor, void* out, Dtype out_dtype);

}  // namespace heddle::kernels::host

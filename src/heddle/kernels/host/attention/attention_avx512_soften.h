// The softmax of a step of 32 queries with AVX-512, for tiles and for words. Scores of 128 keys at a time become
// probabilities. One pass over each row keeps them in registers from the maximum to the rounding.
//
// The reference m of a row, subtracted before the exponential, follows the row's maximum only when that has grown
// by more than kSlack. Any reference gives the same quotient. A stale one spares the rescaling of `out`, and tiles
// the horizontal maximum. Scores are in units of log2 here, so that the exponential is a power of two.
#pragma once

#include <cmath>
#include <limits>

#include "heddle/kernels/host/attention/attention_avx512_words.h"
#include "heddle/kernels/host/attention/attention_running.h"

namespace heddle::kernels::host::attention {

constexpr int64_t kGroup = 4;              // steps of keys a pass
constexpr int64_t kKeys = kGroup * kStep;  // 128
constexpr float kSlack = 8.0f;             // 2^8 is far from overflow

inline Running take_running(Carver& carver, const Problem& p) {
  Running r;
  r.width = round_up(p.value_dim, kLanes);
  r.lanes = kLanes;
  r.per_nat = static_cast<float>(kLog2E);
  r.slack = kSlack;
  r.out = carver.take<float>(kStep * r.width);
  r.sums = carver.take<float>(kStep * kLanes);
  r.reference = carver.take<float>(kStep);
  r.limit = carver.take<float>(kStep);
  return r;
}

/// Sets, for each row, which of the last 32 keys it sees.
inline void see_last_keys(const Problem& p, uint32_t* allowed) {
  for (int64_t row = 0; row < kStep; ++row)
    allowed[row] = p.has_diagonal() ? bits_below(row + 1) : bits_below(p.keys - (p.key_steps() - 1) * kStep);
}

/// Moves the reference of a row to its highest raw score and rescales what has been summed.
HEDDLE_AVX512 __attribute__((noinline)) inline void move_reference(const Running& r, int64_t row, __m512 highest,
                                                                   float scale_log2) {
  const float reference = _mm512_reduce_max_ps(highest) * scale_log2;
  const __m512 factor = _mm512_set1_ps(std::exp2(r.reference[row] - reference));
  float* const sums = r.sums + row * kLanes;
  _mm512_store_ps(sums, _mm512_mul_ps(_mm512_load_ps(sums), factor));
  float* const out = r.out + row * r.width;
  for (int64_t n = 0; n < r.width; n += kLanes)
    _mm512_store_ps(out + n, _mm512_mul_ps(_mm512_load_ps(out + n), factor));
  r.reference[row] = reference;
  r.limit[row] = (reference + kSlack) / scale_log2;
}

/// Distances between probabilities, in floats: between steps of 32 keys, between rows, between runs of 16 rows.
struct WeightRows {
  int64_t step, row, run;
};

/// Scores of rows [first, end) to probabilities. `masked`: of the last 32 keys, row r sees those in allowed[r].
template <class Words, WeightRows at, int steps, bool masked>
HEDDLE_AVX512 void soften_rows(const Running& r, const float* scores, float* weights, int64_t first, int64_t end,
                               const uint32_t* allowed, float scale_log2) {
  const __m512 scale = _mm512_set1_ps(scale_log2);
  const __m512 lowest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  for (int64_t row = first; row < end; ++row) {
    __m512 x[2 * steps];
#pragma GCC unroll 8
    for (int n = 0; n < 2 * steps; ++n) x[n] = _mm512_load_ps(scores + row * kKeys + n * kLanes);
    if (masked) {  // the exponential of minus infinity is 0: an unseen key weighs nothing at all
      const auto low = static_cast<__mmask16>(allowed[row]), high = static_cast<__mmask16>(allowed[row] >> 16);
      x[2 * steps - 2] = _mm512_mask_mov_ps(lowest, low, x[2 * steps - 2]);
      x[2 * steps - 1] = _mm512_mask_mov_ps(lowest, high, x[2 * steps - 1]);
    }
    __m512 highest = _mm512_max_ps(x[0], x[1]);
#pragma GCC unroll 8
    for (int n = 2; n < 2 * steps; ++n) highest = _mm512_max_ps(highest, x[n]);
    if (__builtin_expect(_mm512_cmp_ps_mask(highest, _mm512_set1_ps(r.limit[row]), _CMP_GT_OQ) != 0, 0)) {
      move_reference(r, row, highest, scale_log2);
    }
    const __m512 reference = _mm512_set1_ps(r.reference[row]);
#pragma GCC unroll 8
    for (int n = 0; n < 2 * steps; ++n) x[n] = Words::exp2(_mm512_fmsub_ps(x[n], scale, reference));
    __m512 sum = _mm512_load_ps(r.sums + row * kLanes);
    float* const to = weights + row / 16 * at.run + row % 16 * at.row;
#pragma GCC unroll 4
    for (int s = 0; s < steps; ++s) {
      sum = _mm512_add_ps(sum, _mm512_add_ps(x[2 * s], x[2 * s + 1]));
      if constexpr (Words::kPer == 1) {
        _mm512_store_ps(to + s * at.step, x[2 * s]);
        _mm512_store_ps(to + s * at.step + kLanes, x[2 * s + 1]);
      } else {
        _mm512_store_ps(to + s * at.step, Words::pairs_across(x[2 * s], x[2 * s + 1]));
      }
    }
    _mm512_store_ps(r.sums + row * kLanes, sum);
  }
}

/// By whether keys are masked, and by steps of keys less one.
template <class Words, WeightRows at>
constexpr decltype(&soften_rows<Words, at, 1, false>) kSoftenRows[2][kGroup] = {
    {soften_rows<Words, at, 1, false>, soften_rows<Words, at, 2, false>, soften_rows<Words, at, 3, false>,
     soften_rows<Words, at, 4, false>},
    {soften_rows<Words, at, 1, true>, soften_rows<Words, at, 2, true>, soften_rows<Words, at, 3, true>,
     soften_rows<Words, at, 4, true>}};

/// Writes what `rows` rows have summed, and their lse.
template <class Words>
HEDDLE_AVX512 void finish(const Task& task, const Running& r, int64_t head, int64_t first_row, int64_t rows) {
  const Problem& p = task.problem;
  alignas(64) float totals[kStep], lse[kStep];
  for (int64_t row = 0; row < kStep; ++row)
    totals[row] = _mm512_reduce_add_ps(_mm512_load_ps(r.sums + row * kLanes));
  for (int64_t row = 0; row < kStep; row += kLanes) {
    const __m512 log = log_close(_mm512_load_ps(totals + row));
    const __m512 reference = _mm512_load_ps(r.reference + row);
    _mm512_store_ps(lse + row, _mm512_fmadd_ps(reference, _mm512_set1_ps(static_cast<float>(1 / kLog2E)), log));
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = p.first_query(task.unit) + first_row + row;
    task.operands.lse[at * p.heads + head] = lse[row];
    const int64_t first = (at * p.heads + head) * p.value_dim;
    const __m512 factor = _mm512_set1_ps(1.0f / totals[row]);
    for (int64_t n = 0; n < p.value_dim; n += kLanes) {
      const __m512 x = _mm512_mul_ps(_mm512_load_ps(r.out + row * r.width + n), factor);
      if (task.operands.wide_out) {
        Fp32::store(static_cast<float*>(task.operands.out) + first + n, p.value_dim - n, x);
      } else {
        Words::store(static_cast<typename Words::Element*>(task.operands.out) + first + n, p.value_dim - n, x);
      }
    }
  }
}

}  // namespace heddle::kernels::host::attention

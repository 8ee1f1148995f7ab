// Forward of attention in fp32 with AVX-512.
//
// For 32 queries and 128 keys at a time: scores = q kᵀ (lanes run along keys, hence kᵀ is packed once a unit), then
// one pass over each row of scores that makes the probabilities, then out += probabilities · v.
//
// The reference m of a row, subtracted before the exponential, follows the row's maximum only when that has grown
// by more than kSlack: any reference gives the same quotient, and a stale one saves rescaling `out`.
#include "heddle/kernels/host/attention_problem.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "heddle/kernels/host/attention_avx512_pack.h"
#include "heddle/kernels/host/attention_avx512_product.h"

namespace heddle::kernels::host::attention {
namespace {

constexpr int64_t kGroup = 4;              // steps of keys a pass
constexpr int64_t kKeys = kGroup * kStep;  // 128
constexpr float kSlack = 6.0f;             // e^6 is far from overflow

struct Shared {
  Shared(const Problem& p, std::byte* base) {
    Carver carver(base);
    k_t = carver.take<float>(p.key_steps() * p.head_dim * kStep);
    v = carver.take<float>(p.key_steps() * kStep * round_up(p.value_dim, kLanes));
    bytes = carver.used();
  }
  float* k_t;  // [step][D][32]
  float* v;    // [S][Dv padded to 16]
  int64_t bytes;
};

struct Thread {
  Thread(const Problem& p, std::byte* base) {
    Carver carver(base);
    q = carver.take<float>(kStep * p.head_dim);
    scores = carver.take<float>(kStep * kKeys);
    out = carver.take<float>(kStep * round_up(p.value_dim, kLanes));
    sums = carver.take<float>(kStep * kLanes);
    reference = carver.take<float>(kStep);
    limit = carver.take<float>(kStep);
    bytes = carver.used();
  }
  float* q;          // [32][D]
  float* scores;     // [32][128], then the probabilities
  float* out;        // [32][Dv padded]
  float* sums;       // [32][16], a row's sum is the sum of its lanes
  float* reference;  // [32], in units of the scaled score
  float* limit;      // [32], the raw score at which the reference must move
  int64_t bytes;
};

int64_t shared_bytes(const Problem& p) { return Shared(p, nullptr).bytes; }
int64_t thread_bytes(const Problem& p) { return Thread(p, nullptr).bytes; }

void pack_keys(const Task& task, int64_t first_step, int64_t end_step) {
  const Problem& p = task.problem;
  const Shared shared(p, task.shared);
  const RowsOf k = key_rows(task, task.operands.k, p.head_dim);
  const RowsOf v = key_rows(task, task.operands.v, p.value_dim);
  pack_transposed(k, p.keys, first_step, end_step, shared.k_t);
  pack_padded(v, p.keys, first_step, end_step, shared.v);
}

/// Moves the reference of a row to `highest` (a raw score) and rescales what has been summed.
HEDDLE_AVX512 __attribute__((noinline)) void move_reference(const Thread& t, int64_t row, float highest,
                                                            float scale, int64_t vectors) {
  const float reference = highest * scale;
  const __m512 factor = _mm512_set1_ps(std::exp(t.reference[row] - reference));
  float* const sums = t.sums + row * kLanes;
  _mm512_store_ps(sums, _mm512_mul_ps(_mm512_load_ps(sums), factor));
  float* const out = t.out + row * vectors * kLanes;
  for (int64_t n = 0; n < vectors; ++n) {
    _mm512_storeu_ps(out + n * kLanes, _mm512_mul_ps(_mm512_loadu_ps(out + n * kLanes), factor));
  }
  t.reference[row] = reference;
  t.limit[row] = (reference + kSlack) / scale;
}

/// Scores to probabilities, in place, for 32 rows × `vectors` vectors. `allowed`: for each row the bits of the last
/// 32 keys that it may see, or null.
HEDDLE_AVX512 void soften(const Thread& t, int64_t vectors, const uint32_t* allowed, float scale,
                          int64_t out_vectors) {
  const __m512 lowest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  const __m512 scale_x = _mm512_set1_ps(scale);
  for (int64_t row = 0; row < kStep; ++row) {
    float* const scores = t.scores + row * kKeys;
    if (allowed) {
      for (int64_t n = vectors - 2, shift = 0; n < vectors; ++n, shift += 16) {
        const auto mask = static_cast<__mmask16>(allowed[row] >> shift);
        _mm512_store_ps(scores + n * kLanes, _mm512_mask_mov_ps(lowest, mask, _mm512_load_ps(scores + n * kLanes)));
      }
    }
    __m512 highest = _mm512_load_ps(scores);
    for (int64_t n = 1; n < vectors; ++n) highest = _mm512_max_ps(highest, _mm512_load_ps(scores + n * kLanes));
    if (_mm512_cmp_ps_mask(highest, _mm512_set1_ps(t.limit[row]), _CMP_GT_OQ)) {
      move_reference(t, row, _mm512_reduce_max_ps(highest), scale, out_vectors);
    }
    const __m512 reference = _mm512_set1_ps(t.reference[row]);
    __m512 sum = _mm512_load_ps(t.sums + row * kLanes);
    for (int64_t n = 0; n < vectors; ++n) {
      const __m512 score = _mm512_load_ps(scores + n * kLanes);
      __m512 y = exp_close(_mm512_fmsub_ps(score, scale_x, reference));
      // A key that may not be seen weighs nothing at all, not 2^-100.
      if (allowed) y = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(score, lowest, _CMP_NEQ_UQ), y);
      sum = _mm512_add_ps(sum, y);
      _mm512_store_ps(scores + n * kLanes, y);
    }
    _mm512_store_ps(t.sums + row * kLanes, sum);
  }
}

HEDDLE_AVX512 void finish(const Task& task, const Thread& t, int64_t head, int64_t first_row, int64_t rows) {
  const Problem& p = task.problem;
  const int64_t width = round_up(p.value_dim, kLanes);
  alignas(64) float totals[kStep], lse[kStep];
  for (int64_t row = 0; row < kStep; ++row)
    totals[row] = _mm512_reduce_add_ps(_mm512_load_ps(t.sums + row * kLanes));
  for (int64_t row = 0; row < kStep; row += kLanes) {
    const __m512 log = log_close(_mm512_load_ps(totals + row));
    _mm512_store_ps(lse + row, _mm512_add_ps(log, _mm512_load_ps(t.reference + row)));
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = p.first_query(task.unit) + first_row + row;
    task.operands.lse[at * p.heads + head] = lse[row];
    float* const out = static_cast<float*>(task.operands.out) + (at * p.heads + head) * p.value_dim;
    const __m512 factor = _mm512_set1_ps(1.0f / totals[row]);
    for (int64_t n = 0; n < p.value_dim; n += kLanes) {
      const __m512 x = _mm512_mul_ps(_mm512_load_ps(t.out + row * width + n), factor);
      _mm512_mask_storeu_ps(out + n, lanes_below(p.value_dim - n), x);
    }
  }
}

HEDDLE_AVX512 void attend(const Task& task, int64_t member, int64_t block) {
  const Problem& p = task.problem;
  const Shared shared(p, task.shared);
  const Thread t(p, task.thread);
  const int64_t head = p.head(task.unit, member), first_row = block * kStep;
  const int64_t width = round_up(p.value_dim, kLanes), rows = std::min(kStep, p.queries - first_row);
  copy_rows(query_rows(task, task.operands.q, head, p.head_dim), first_row, rows, kStep, t.q, p.head_dim);
  std::memset(t.out, 0, static_cast<size_t>(kStep * width) * sizeof(float));
  std::memset(t.sums, 0, static_cast<size_t>(kStep * kLanes) * sizeof(float));
  std::fill_n(t.reference, kStep, -std::numeric_limits<float>::infinity());
  std::fill_n(t.limit, kStep, -std::numeric_limits<float>::infinity());

  uint32_t allowed[kStep];
  const bool ragged = p.keys % kStep != 0;
  for (int64_t row = 0; row < kStep; ++row) {
    allowed[row] = p.causal ? bits_below(row + 1) : bits_below(p.keys - (p.key_steps() - 1) * kStep);
  }
  const int64_t end_step = p.causal ? p.diagonal(block) + 1 : p.key_steps();
  for (int64_t first = 0; first < end_step; first += kGroup) {
    const int64_t steps = std::min(kGroup, end_step - first);
    for (int64_t s = 0; s < steps; ++s) {
      multiply(kStep, 2, p.head_dim, {t.q, p.head_dim, 1}, shared.k_t + (first + s) * p.head_dim * kStep, kStep,
               t.scores + s * kStep, kKeys, false);
    }
    const bool masked = first + steps == end_step && (p.causal || ragged);
    soften(t, 2 * steps, masked ? allowed : nullptr, p.scale, width / kLanes);
    multiply(kStep, width / kLanes, steps * kStep, {t.scores, kKeys, 1}, shared.v + first * kStep * width, width,
             t.out, width, true);
  }
  finish(task, t, head, first_row, rows);
}

}  // namespace

const ForwardPath kForwardAvx512 = {1, shared_bytes, thread_bytes, pack_keys, attend};

}  // namespace heddle::kernels::host::attention

#endif

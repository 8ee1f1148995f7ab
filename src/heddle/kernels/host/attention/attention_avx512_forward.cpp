// Forward of attention with AVX-512, in fp32 and bf16.
//
// It takes 32 queries and 128 keys at a time. First scores = q kᵀ (lanes run along keys, hence kᵀ is packed once a
// unit). Then one pass over each row of scores makes the probabilities (kept in registers from the maximum to the
// rounding). Then out += probabilities · v.
//
// The reference m of a row, subtracted before the exponential, follows the row's maximum only when that has grown
// by more than kSlack. Any reference gives the same quotient, and a stale one saves rescaling `out`. Scores are in
// units of log2 here, so that the exponential is a power of two.
#include "heddle/kernels/host/attention/attention_problem.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "heddle/kernels/host/attention/attention_avx512_pack.h"
#include "heddle/kernels/host/attention/attention_avx512_product.h"
#include "heddle/kernels/host/attention/attention_running.h"

namespace heddle::kernels::host::attention {
namespace {

constexpr int64_t kGroup = 4;              // steps of keys a pass
constexpr int64_t kKeys = kGroup * kStep;  // 128
constexpr float kSlack = 8.0f;             // 2^8 is far from overflow
constexpr float kLowest = -std::numeric_limits<float>::infinity();

template <class Words>
struct Shared {
  Shared(const Problem& p, std::byte* base)
      : depth(divide_up(p.head_dim, Words::kPer)), value_width(round_up(p.value_dim, kLanes)) {
    Carver carver(base);
    k_t = carver.take<float>(p.key_steps() * depth * kStep);
    v = carver.take<float>(p.key_steps() * kStep / Words::kPer * value_width);
    bytes = carver.used();
  }
  float* k_panel(int64_t step) const { return k_t + step * depth * kStep; }
  float* v_rows(int64_t step) const { return v + step * kStep / Words::kPer * value_width; }
  int64_t depth, value_width;  // words of a key; Dv padded to 16
  float* k_t;                  // transposed: [step][words][32]
  float* v;                    // down: [S in words][Dv padded]
  int64_t bytes;
};

struct Thread {
  Thread(const Problem& p, std::byte* base) {
    Carver carver(base);
    q = carver.take<float>(kStep * round_up(p.head_dim, kLanes));
    scores = carver.take<float>(kStep * kKeys);
    out = carver.take<float>(kStep * round_up(p.value_dim, kLanes));
    sums = carver.take<float>(kStep * kLanes);
    reference = carver.take<float>(kStep);
    limit = carver.take<float>(kStep);
    bytes = carver.used();
  }
  float* q;          // rows: [32][words padded]
  float* scores;     // [32][128], then the probabilities as words
  float* out;        // [32][Dv padded]
  float* sums;       // [32][16], a row's sum is the sum of its lanes
  float* reference;  // [32], units of log2
  float* limit;      // [32], the raw score at which the reference must move
  int64_t bytes;
};

template <class Words>
int64_t shared_bytes(const Problem& p) {
  return Shared<Words>(p, nullptr).bytes;
}
int64_t thread_bytes(const Problem& p) { return Thread(p, nullptr).bytes; }

template <class Words>
void pack_keys(const Task& task, int64_t first_step, int64_t end_step) {
  const Problem& p = task.problem;
  const Shared<Words> s(p, task.shared);
  pack_transposed(key_rows<Words>(task, task.operands.k, p.head_dim), first_step, end_step, s.k_panel(first_step));
  pack_down(key_rows<Words>(task, task.operands.v, p.value_dim), first_step, end_step, s.v_rows(first_step));
}

/// Moves the reference of a row to its highest raw score and rescales what has been summed.
HEDDLE_AVX512 __attribute__((noinline)) void move_reference(const Thread& t, int64_t row, __m512 highest,
                                                            float scale_log2, int64_t out_vectors) {
  const float reference = _mm512_reduce_max_ps(highest) * scale_log2;
  const __m512 factor = _mm512_set1_ps(std::exp2(t.reference[row] - reference));
  float* const sums = t.sums + row * kLanes;
  _mm512_store_ps(sums, _mm512_mul_ps(_mm512_load_ps(sums), factor));
  float* const out = t.out + row * out_vectors * kLanes;
  for (int64_t n = 0; n < out_vectors; ++n) {
    _mm512_store_ps(out + n * kLanes, _mm512_mul_ps(_mm512_load_ps(out + n * kLanes), factor));
  }
  t.reference[row] = reference;
  t.limit[row] = (reference + kSlack) / scale_log2;
}

/// Scores to probabilities, in place, for 32 rows. `masked`: of the last 32 keys, row r sees those in allowed[r].
template <class Words, int steps, bool masked>
HEDDLE_AVX512 void soften_rows(const Thread& t, const uint32_t* allowed, float scale_log2, int64_t out_vectors) {
  const __m512 scale = _mm512_set1_ps(scale_log2), lowest = _mm512_set1_ps(kLowest);
  for (int64_t row = 0; row < kStep; ++row) {
    float* const scores = t.scores + row * kKeys;
    __m512 x[2 * steps];
#pragma GCC unroll 8
    for (int n = 0; n < 2 * steps; ++n) x[n] = _mm512_load_ps(scores + n * kLanes);
    if (masked) {
      const auto low = static_cast<__mmask16>(allowed[row]), high = static_cast<__mmask16>(allowed[row] >> 16);
      x[2 * steps - 2] = _mm512_mask_mov_ps(lowest, low, x[2 * steps - 2]);
      x[2 * steps - 1] = _mm512_mask_mov_ps(lowest, high, x[2 * steps - 1]);
    }
    __m512 highest = _mm512_max_ps(x[0], x[1]);
#pragma GCC unroll 8
    for (int n = 2; n < 2 * steps; ++n) highest = _mm512_max_ps(highest, x[n]);
    if (__builtin_expect(_mm512_cmp_ps_mask(highest, _mm512_set1_ps(t.limit[row]), _CMP_GT_OQ) != 0, 0)) {
      move_reference(t, row, highest, scale_log2, out_vectors);
    }
    const __m512 reference = _mm512_set1_ps(t.reference[row]);
#pragma GCC unroll 8
    for (int n = 0; n < 2 * steps; ++n) x[n] = Words::exp2(_mm512_fmsub_ps(x[n], scale, reference));
    __m512 sum = _mm512_load_ps(t.sums + row * kLanes);
#pragma GCC unroll 4
    for (int s = 0; s < steps; ++s) {
      sum = _mm512_add_ps(sum, _mm512_add_ps(x[2 * s], x[2 * s + 1]));
      if constexpr (Words::kPer == 1) {
        _mm512_store_ps(scores + s * kStep, x[2 * s]);
        _mm512_store_ps(scores + s * kStep + kLanes, x[2 * s + 1]);
      } else {
        _mm512_store_ps(scores + s * kLanes, Words::pairs_across(x[2 * s], x[2 * s + 1]));
      }
    }
    _mm512_store_ps(t.sums + row * kLanes, sum);
  }
}

template <class Words>
HEDDLE_AVX512 void finish(const Task& task, const Thread& t, int64_t head, int64_t first_row, int64_t rows) {
  const Problem& p = task.problem;
  const int64_t width = round_up(p.value_dim, kLanes);
  alignas(64) float totals[kStep], lse[kStep];
  for (int64_t row = 0; row < kStep; ++row)
    totals[row] = _mm512_reduce_add_ps(_mm512_load_ps(t.sums + row * kLanes));
  for (int64_t row = 0; row < kStep; row += kLanes) {
    const __m512 log = log_close(_mm512_load_ps(totals + row));
    const __m512 reference = _mm512_load_ps(t.reference + row);
    _mm512_store_ps(lse + row, _mm512_fmadd_ps(reference, _mm512_set1_ps(static_cast<float>(1 / kLog2E)), log));
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = p.first_query(task.unit) + first_row + row;
    task.operands.lse[at * p.heads + head] = lse[row];
    const int64_t first = (at * p.heads + head) * p.value_dim;
    const __m512 factor = _mm512_set1_ps(1.0f / totals[row]);
    for (int64_t n = 0; n < p.value_dim; n += kLanes) {
      const __m512 x = _mm512_mul_ps(_mm512_load_ps(t.out + row * width + n), factor);
      if (task.operands.wide_out) {
        Fp32::store(static_cast<float*>(task.operands.out) + first + n, p.value_dim - n, x);
      } else {
        Words::store(static_cast<typename Words::Element*>(task.operands.out) + first + n, p.value_dim - n, x);
      }
    }
  }
}

template <class Words>
void attend(const Task& task, int64_t member, int64_t block) {
  using SoftenRows = decltype(&soften_rows<Words, 1, false>);
  static constexpr SoftenRows kSoftenRows[2][kGroup] = {
      {soften_rows<Words, 1, false>, soften_rows<Words, 2, false>, soften_rows<Words, 3, false>,
       soften_rows<Words, 4, false>},
      {soften_rows<Words, 1, true>, soften_rows<Words, 2, true>, soften_rows<Words, 3, true>,
       soften_rows<Words, 4, true>}};
  const Problem& p = task.problem;
  const Shared<Words> shared(p, task.shared);
  const Thread t(p, task.thread);
  const int64_t head = p.head(task.unit, member), first_row = block * kStep;
  const RowsOf<Words> q = query_rows<Words>(task, task.operands.q, head, p.head_dim);
  const int64_t width = shared.value_width, q_width = q.padded_depth(),
                rows = std::min(kStep, p.queries - first_row);
  const int64_t begin_step = p.begin_step(task.unit, block), end_step = p.seen_steps(block);
  if (begin_step >= end_step) return pass_on(task, head, first_row, rows);
  const float scale_log2 = p.scale * static_cast<float>(kLog2E);
  pack_rows(q, block, block + 1, t.q);
  begin(task, head, first_row, rows,
        {t.out, t.sums, t.reference, t.limit, width, kLanes, static_cast<float>(kLog2E), kSlack});

  uint32_t allowed[kStep];
  for (int64_t row = 0; row < kStep; ++row) {
    allowed[row] = p.has_diagonal() ? bits_below(row + 1) : bits_below(p.keys - (p.key_steps() - 1) * kStep);
  }
  for (int64_t first = begin_step; first < end_step; first += kGroup) {
    const int64_t steps = std::min(kGroup, end_step - first);
    for (int64_t s = 0; s < steps; ++s) {
      multiply<Words>(kStep, 2, shared.depth, {t.q, q_width, 1}, shared.k_panel(first + s), kStep,
                      t.scores + s * kStep, kKeys, false);
    }
    hide_unseen(task, block, first * kStep, steps * kStep, t.scores, kKeys);
    const bool masked = first + steps == end_step && (p.has_diagonal() || p.keys % kStep != 0);
    kSoftenRows[masked][steps - 1](t, allowed, scale_log2, width / kLanes);
    multiply<Words>(kStep, width / kLanes, steps * kStep / Words::kPer, {t.scores, kKeys, 1}, shared.v_rows(first),
                    width, t.out, width, true);
  }
  finish<Words>(task, t, head, first_row, rows);
}

template <class Words>
constexpr ForwardPath kPath = {1, shared_bytes<Words>, thread_bytes, pack_keys<Words>, attend<Words>};

}  // namespace

const ForwardPath kForwardAvx512 = kPath<Fp32>;
const ForwardPath kForwardAvx512Widened = kPath<Bf16Widened>;
const ForwardPath kForwardAvx512Bf16 = kPath<Bf16Pairs>;

}  // namespace heddle::kernels::host::attention

#endif

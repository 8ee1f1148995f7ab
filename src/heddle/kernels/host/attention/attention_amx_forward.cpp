// Forward of attention in bf16 with AMX.
//
// An item is 32 queries and 128 keys. First scores = q kᵀ by tiles. Then one pass over each row of scores makes the
// probabilities (kept in registers from the maximum to the rounding). Then out += probabilities · v by tiles. While
// the vector units soften one item, the tile unit computes the scores of the next: 8 rows are softened between
// starting the products of 32 keys and storing them.
//
// The reference m of a row, subtracted before the exponential, follows the row's maximum only when that has grown
// by more than kSlack. Any reference gives the same quotient, and a stale one spares both the horizontal maximum
// and the rescaling of `out`. Scores are in units of log2 here, so that the exponential is a power of two.
#include "heddle/kernels/host/attention/attention_problem.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "heddle/kernels/host/attention/attention_ahead.h"
#include "heddle/kernels/host/attention/attention_amx_tiles.h"
#include "heddle/kernels/host/attention/attention_running.h"

namespace heddle::kernels::host::attention {
namespace {

constexpr int64_t kGroup = 4;              // steps of keys an item
constexpr int64_t kKeys = kGroup * kStep;  // 128
constexpr int64_t kBlock = 2;              // steps of queries a block
constexpr float kSlack = 8.0f;             // 2^8 is far from overflow
constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct Shared {
  Shared(const Problem& p, std::byte* base)
      : width_steps(divide_up(p.head_dim, 32)), value_tiles(divide_up(p.value_dim, kSide)) {
    Carver carver(base);
    k = carver.take<bf16>(p.key_steps() * 2 * width_steps * kTile);
    v = carver.take<bf16>(p.key_steps() * value_tiles * kTile);
    bytes = carver.used();
  }
  int64_t width_steps, value_tiles;
  bf16* k;  // pairs_across: [key tile][column step]
  bf16* v;  // pairs_down: [key step][value tile]
  int64_t bytes;
};

struct Thread {
  Thread(const Problem& p, std::byte* base) {
    Carver carver(base);
    q = carver.take<bf16>(kBlock * 2 * divide_up(p.head_dim, 32) * kTile);
    scores[0] = carver.take<float>(kStep * kKeys);
    scores[1] = carver.take<float>(kStep * kKeys);
    weights = carver.take<bf16>(kStep * kKeys);
    for (Running& r : running) {
      r.width = round_up(p.value_dim, kSide);
      r.lanes = kSide;
      r.per_nat = static_cast<float>(kLog2E);
      r.slack = kSlack;
      r.out = carver.take<float>(kStep * r.width);
      r.sums = carver.take<float>(kStep * r.lanes);
      r.reference = carver.take<float>(kStep);
      r.limit = carver.take<float>(kStep);
    }
    bytes = carver.used();
  }
  bf16* q;           // rows: [query tile][column step]
  float* scores[2];  // [32][128]
  bf16* weights;     // probabilities, rows: [query tile of 2][key step of 4]
  Running running[kBlock];
  int64_t bytes;
};

int64_t shared_bytes(const Problem& p) { return Shared(p, nullptr).bytes; }
int64_t thread_bytes(const Problem& p) { return Thread(p, nullptr).bytes; }

void pack_keys(const Task& task, int64_t first_step, int64_t end_step) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const HeadRows k = key_rows(task, task.operands.k, p.head_dim);
  const HeadRows v = key_rows(task, task.operands.v, p.value_dim);
  for (int64_t step = first_step; step < end_step; ++step) {
    pack_pairs_across(k, step, s.width_steps, s.k + step * 2 * s.width_steps * kTile);
    pack_pairs_down(v, step, s.value_tiles, s.v + step * s.value_tiles * kTile);
  }
}

/// Moves the reference of a row to its highest raw score and rescales what has been summed.
HEDDLE_AVX512 __attribute__((noinline)) void move_reference(const Running& t, int64_t row, __m512 highest,
                                                            float scale_log2, int64_t value_tiles) {
  const float reference = _mm512_reduce_max_ps(highest) * scale_log2;
  const __m512 factor = _mm512_set1_ps(std::exp2(t.reference[row] - reference));
  float* const sums = t.sums + row * 16;
  _mm512_store_ps(sums, _mm512_mul_ps(_mm512_load_ps(sums), factor));
  float* const out = t.out + row * value_tiles * kSide;
  for (int64_t n = 0; n < value_tiles; ++n) {
    _mm512_store_ps(out + n * kSide, _mm512_mul_ps(_mm512_load_ps(out + n * kSide), factor));
  }
  t.reference[row] = reference;
  t.limit[row] = (reference + kSlack) / scale_log2;
}

/// Scores of rows [first, end) to probabilities. `masked`: of the last 32 keys, row r sees those in allowed[r].
template <int steps, bool masked>
HEDDLE_AVX512 void soften_rows(const Running& t, const float* scores, bf16* weights, int64_t first, int64_t end,
                               const uint32_t* allowed, float scale_log2, int64_t value_tiles) {
  const __m512 scale = _mm512_set1_ps(scale_log2), lowest = _mm512_set1_ps(kLowest);
  for (int64_t row = first; row < end; ++row) {
    __m512 x[2 * steps];
#pragma GCC unroll 8
    for (int n = 0; n < 2 * steps; ++n) x[n] = _mm512_load_ps(scores + row * kKeys + n * 16);
    if (masked) {  // the exponential of minus infinity is 0: an unseen key weighs nothing at all
      const auto low = static_cast<__mmask16>(allowed[row]), high = static_cast<__mmask16>(allowed[row] >> 16);
      x[2 * steps - 2] = _mm512_mask_mov_ps(lowest, low, x[2 * steps - 2]);
      x[2 * steps - 1] = _mm512_mask_mov_ps(lowest, high, x[2 * steps - 1]);
    }
    __m512 highest = _mm512_max_ps(x[0], x[1]);
#pragma GCC unroll 8
    for (int n = 2; n < 2 * steps; ++n) highest = _mm512_max_ps(highest, x[n]);
    if (__builtin_expect(_mm512_cmp_ps_mask(highest, _mm512_set1_ps(t.limit[row]), _CMP_GT_OQ) != 0, 0)) {
      move_reference(t, row, highest, scale_log2, value_tiles);
    }
    const __m512 reference = _mm512_set1_ps(t.reference[row]);
#pragma GCC unroll 8
    for (int n = 0; n < 2 * steps; ++n) x[n] = exp2_coarse(_mm512_fmsub_ps(x[n], scale, reference));
    __m512 sum = _mm512_load_ps(t.sums + row * 16);
    bf16* const to = weights + (row / kSide * kGroup * kTile) + row % kSide * 32;
#pragma GCC unroll 4
    for (int s = 0; s < steps; ++s) {
      sum = _mm512_add_ps(sum, _mm512_add_ps(x[2 * s], x[2 * s + 1]));
      _mm512_store_si512(to + s * kTile, (__m512i)_mm512_cvtne2ps_pbh(x[2 * s + 1], x[2 * s]));
    }
    _mm512_store_ps(t.sums + row * 16, sum);
  }
}

using SoftenRows = decltype(&soften_rows<4, false>);
constexpr SoftenRows kSoftenRows[2][kGroup] = {
    {soften_rows<1, false>, soften_rows<2, false>, soften_rows<3, false>, soften_rows<4, false>},
    {soften_rows<1, true>, soften_rows<2, true>, soften_rows<3, true>, soften_rows<4, true>}};

HEDDLE_AVX512 void finish(const Task& task, const Running& t, int64_t head, int64_t first_row, int64_t rows) {
  const Problem& p = task.problem;
  const int64_t width = round_up(p.value_dim, kSide);
  alignas(64) float totals[kStep], lse[kStep];
  for (int64_t row = 0; row < kStep; ++row) totals[row] = _mm512_reduce_add_ps(_mm512_load_ps(t.sums + row * 16));
  for (int64_t row = 0; row < kStep; row += 16) {
    const __m512 log = log_close(_mm512_load_ps(totals + row));
    const __m512 reference = _mm512_load_ps(t.reference + row);
    _mm512_store_ps(lse + row, _mm512_fmadd_ps(reference, _mm512_set1_ps(static_cast<float>(1 / kLog2E)), log));
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = p.first_query(task.unit) + first_row + row;
    task.operands.lse[at * p.heads + head] = lse[row];
    const int64_t first = (at * p.heads + head) * p.value_dim;
    const __m512 factor = _mm512_set1_ps(1.0f / totals[row]);
    for (int64_t n = 0; n < p.value_dim; n += kSide) {
      const __m512 x = _mm512_mul_ps(_mm512_load_ps(t.out + row * width + n), factor);
      if (task.operands.wide_out) {
        store_row(static_cast<float*>(task.operands.out) + first + n, p.value_dim - n, x);
      } else {
        store_row(static_cast<bf16*>(task.operands.out) + first + n, p.value_dim - n, x);
      }
    }
  }
}

void attend(const Task& task, int64_t member, int64_t block) {
  const Problem& p = task.problem;
  const Shared shared(p, task.shared);
  const Thread t(p, task.thread);
  const int64_t head = p.head(task.unit, member), first_step = block * kBlock;
  const int64_t width_steps = shared.width_steps, value_tiles = shared.value_tiles, out_width = value_tiles * kSide;
  const int64_t subs = std::min(kBlock, p.query_steps() - first_step);
  const HeadRows q = query_rows(task, task.operands.q, head, p.head_dim);
  const float scale_log2 = p.scale * static_cast<float>(kLog2E);
  const auto end_step = [&](int64_t sub) { return p.seen_steps(first_step + sub); };
  if (p.begin_step(task.unit, first_step) >= end_step(subs - 1)) {  // of others' keys: what none of them sees
    const int64_t first_row = first_step * kStep;
    return pass_on(task, head, first_row, std::min(subs * kStep, p.queries - first_row));
  }
  for (int64_t sub = 0; sub < subs; ++sub) {
    const int64_t first_row = (first_step + sub) * kStep, end_row = std::min(first_row + kStep, p.queries);
    pack_rows(q, first_step + sub, width_steps, t.q + sub * 2 * width_steps * kTile);
    begin(task, head, first_row, end_row - first_row, t.running[sub]);
    const int64_t bytes = p.value_dim * (task.operands.wide_out ? 4 : 2);
    for (int64_t row = first_row; row < end_row; ++row) {
      char* const out = static_cast<char*>(task.operands.out);
      claim_row(out + ((p.first_query(task.unit) + row) * p.heads + head) * bytes, bytes);
    }
  }
  uint32_t allowed[kStep];
  for (int64_t row = 0; row < kStep; ++row) {
    allowed[row] = p.has_diagonal() ? bits_below(row + 1) : bits_below(p.keys - (p.key_steps() - 1) * kStep);
  }

  // Both steps of queries of a block meet the same groups of keys: the diagonal of a block begins at an even step,
  // a group at a multiple of four. Items run through the groups, and within one through the steps of queries.
  const int64_t first_group = p.begin_step(task.unit, first_step) / kGroup;
  const int64_t items = (divide_up(end_step(subs - 1), kGroup) - first_group) * subs;
  const auto group_of = [&](int64_t item) { return first_group + item / subs; };
  const auto steps_of = [&](int64_t item) {
    return std::min(kGroup, end_step(item % subs) - group_of(item) * kGroup);
  };
  const Sums no_sums{nullptr, kSide * kKeys, kSide, kKeys};
  const auto start_scores = [&](int64_t item, int64_t s) {
    zero_sums<2, 2>();
    add_products<2, 2>(
        {t.q + item % subs * 2 * width_steps * kTile, width_steps * kTile, kTile},
        {shared.k + (group_of(item) * kGroup + s) * 2 * width_steps * kTile, width_steps * kTile, kTile},
        width_steps);
  };
  const auto store_scores = [&](int64_t item, int64_t s) {
    Sums to = no_sums;
    to.data = t.scores[item & 1] + s * kStep;
    store_sums<2, 2>(to);
  };

  Ahead ahead(task, items * kGroup);
  ahead.add_keys(task.operands.k, p.head_dim);
  ahead.add_keys(task.operands.v, p.value_dim);
  ahead.add_queries(task.operands.q, p.head_dim);
  const TileState tiles;
  for (int64_t s = 0; s < steps_of(0); ++s) {
    start_scores(0, s);
    store_scores(0, s);
  }
  for (int64_t item = 0; item < items; ++item) {
    const int64_t sub = item % subs, group = group_of(item), steps = steps_of(item);
    const int64_t steps_ahead = item + 1 < items ? steps_of(item + 1) : 0;
    const Running& r = t.running[sub];
    const bool last = group * kGroup + steps == end_step(sub);
    const bool masked = last && (p.has_diagonal() || p.keys % kStep != 0);
    const SoftenRows soften = kSoftenRows[masked][steps - 1];
    hide_unseen(task, first_step + sub, group * kKeys, steps * kStep, t.scores[item & 1], kKeys);
    for (int64_t s = 0; s < kGroup; ++s) {
      if (s < steps_ahead) start_scores(item + 1, s);
      ahead.ask();
      constexpr int64_t kShare = kStep / kGroup;
      soften(r, t.scores[item & 1], t.weights, s * kShare, (s + 1) * kShare, allowed, scale_log2, value_tiles);
      if (s < steps_ahead) store_scores(item + 1, s);
    }
    multiply_tiles(2, value_tiles, {t.weights, kGroup * kTile, kTile},
                   {shared.v + group * kGroup * value_tiles * kTile, kTile, value_tiles * kTile}, steps,
                   {r.out, kSide * out_width, kSide, out_width}, true);
    if (last) {
      const int64_t first_row = (first_step + sub) * kStep;
      finish(task, r, head, first_row, std::min(kStep, p.queries - first_row));
    }
  }
}

}  // namespace

const ForwardPath kForwardAmx = {kBlock, shared_bytes, thread_bytes, pack_keys, attend};

}  // namespace heddle::kernels::host::attention

#endif

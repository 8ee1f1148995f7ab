// Backward of attention in fp32 with AVX-512.
//
//   p  = exp(scale·q kᵀ − lse)      delta = Σ do·o      dp = do vᵀ      ds = p·(dp − delta)
//   dv = pᵀ do                      dk = scale·dsᵀ q                    dq = scale·ds k
//
// For 64 queries × 64 keys at a time; p and ds live in thread scratch, lanes along keys. dq of a query head and dk,
// dv of the unit are summed in shared scratch and written out once.
#include "heddle/kernels/host/attention_problem.h"

#if defined(__x86_64__)

#include <algorithm>

#include "heddle/kernels/host/attention_avx512_pack.h"
#include "heddle/kernels/host/attention_avx512_product.h"

namespace heddle::kernels::host::attention {
namespace {

constexpr int64_t kBlock = 2;                   // steps of queries and of keys
constexpr int64_t kRowsBlock = kBlock * kStep;  // 64

struct Shared {
  Shared(const Problem& p, std::byte* base)
      : width(round_up(p.head_dim, kLanes)), value_width(round_up(p.value_dim, kLanes)) {
    Carver carver(base);
    const int64_t keys = p.key_steps() * kStep, queries = p.query_steps() * kStep;
    k_t = carver.take<float>(keys * p.head_dim);
    v_t = carver.take<float>(keys * p.value_dim);
    k = carver.take<float>(keys * width);
    q = carver.take<float>(queries * width);
    dout = carver.take<float>(queries * value_width);
    lse = carver.take<float>(queries);
    delta = carver.take<float>(queries);
    dq = carver.take<float>(queries * width);
    dk = carver.take<float>(keys * width);
    dv = carver.take<float>(keys * value_width);
    bytes = carver.used();
  }
  int64_t width, value_width;  // D and Dv padded to 16
  float *k_t, *v_t;            // [step][D][32], [step][Dv][32]
  float *k, *q, *dout;         // [S][D padded], the same, [S][Dv padded]
  float *lse, *delta;          // [S]
  float *dq, *dk, *dv;         // sums, as k and dout
  int64_t bytes;
};

struct Thread {
  explicit Thread(std::byte* base) {
    Carver carver(base);
    p = carver.take<float>(kRowsBlock * kRowsBlock);
    ds = carver.take<float>(kRowsBlock * kRowsBlock);
    bytes = carver.used();
  }
  float *p, *ds;  // [64 queries][64 keys]; ds holds dp first
  int64_t bytes;
};

int64_t shared_bytes(const Problem& p) { return Shared(p, nullptr).bytes; }
int64_t thread_bytes(const Problem&) { return Thread(nullptr).bytes; }

void clear(float* sums, int64_t first_step, int64_t end_step, int64_t width) {
  std::memset(sums + first_step * kStep * width, 0,
              static_cast<size_t>((end_step - first_step) * kStep * width) * 4);
}

void pack_keys(const Task& task, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const RowsOf k = key_rows(task, task.operands.k, p.head_dim);
  const RowsOf v = key_rows(task, task.operands.v, p.value_dim);
  pack_transposed(k, p.keys, first, end, s.k_t);
  pack_transposed(v, p.keys, first, end, s.v_t);
  pack_padded(k, p.keys, first, end, s.k);
  clear(s.dk, first, end, s.width);
  clear(s.dv, first, end, s.value_width);
}

HEDDLE_AVX512 float dot(const float* a, const float* b, int64_t count) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < count; i += kLanes) {
    const __mmask16 mask = lanes_below(count - i);
    sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, a + i), _mm512_maskz_loadu_ps(mask, b + i), sum);
  }
  return _mm512_reduce_add_ps(sum);
}

void pack_queries(const Task& task, int64_t member, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const int64_t head = p.head(task.unit, member);
  const RowsOf dout = query_rows(task, task.operands.dout, head, p.value_dim);
  const RowsOf out = query_rows(task, task.operands.out_saved, head, p.value_dim);
  pack_padded(query_rows(task, task.operands.q, head, p.head_dim), p.queries, first, end, s.q);
  pack_padded(dout, p.queries, first, end, s.dout);
  for (int64_t r = first * kStep; r < end * kStep; ++r) {
    // A query that is not there has p = 1 and do = 0: it adds nothing.
    const bool there = r < p.queries;
    s.lse[r] = there ? task.operands.lse_saved[(p.first_query(task.unit) + r) * p.heads + head] : 0.0f;
    s.delta[r] = there ? dot(dout.row(r), out.row(r), p.value_dim) : 0.0f;
  }
  clear(s.dq, first, end, s.width);
}

/// p and ds of 32 queries × 32 keys; the scores stand in p and dp in ds. `keys`: bits of the keys that a row may
/// see, for causal masking shifted so that row r sees keys 0..r.
HEDDLE_AVX512 void weigh(const Thread& t, const float* lse, const float* delta, float scale, bool diagonal,
                         uint32_t keys, int64_t at) {
  const __m512 scale_x = _mm512_set1_ps(scale);
  for (int64_t r = 0; r < kStep; ++r) {
    const uint32_t allowed = diagonal ? keys & bits_below(r + 1) : keys;
    const __m512 lse_x = _mm512_set1_ps(lse[r]), delta_x = _mm512_set1_ps(delta[r]);
    for (int64_t n = 0; n < kStep; n += kLanes) {
      float* const p = t.p + at + r * kRowsBlock + n;
      float* const ds = t.ds + at + r * kRowsBlock + n;
      const __m512 weight = _mm512_maskz_mov_ps(static_cast<__mmask16>(allowed >> n),
                                                exp_close(_mm512_fmsub_ps(_mm512_load_ps(p), scale_x, lse_x)));
      _mm512_store_ps(p, weight);
      _mm512_store_ps(ds, _mm512_mul_ps(weight, _mm512_sub_ps(_mm512_load_ps(ds), delta_x)));
    }
  }
}

HEDDLE_AVX512 void accumulate(const Task& task, int64_t, int64_t key_block, int64_t query_block) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const Thread t(task.thread);
  const int64_t first_key = key_block * kBlock, first_query = query_block * kBlock;  // in steps
  const int64_t keys = std::min(kBlock, p.key_steps() - first_key);
  const int64_t queries = std::min(kBlock, p.query_steps() - first_query);
  const bool on_diagonal = p.causal && first_key == p.diagonal(first_query);
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t row = (first_query + i) * kStep;
    const int64_t end = on_diagonal ? std::min(keys, i + 1) : keys;
    for (int64_t j = 0; j < end; ++j) {
      const int64_t step = first_key + j, at = i * kStep * kRowsBlock + j * kStep;
      multiply(kStep, 2, p.head_dim, {s.q + row * s.width, s.width, 1}, s.k_t + step * kStep * p.head_dim, kStep,
               t.p + at, kRowsBlock, false);
      multiply(kStep, 2, p.value_dim, {s.dout + row * s.value_width, s.value_width, 1},
               s.v_t + step * kStep * p.value_dim, kStep, t.ds + at, kRowsBlock, false);
      weigh(t, s.lse + row, s.delta + row, p.scale, on_diagonal && i == j, bits_below(p.keys - step * kStep), at);
    }
    multiply(kStep, s.width / kLanes, end * kStep, {t.ds + i * kStep * kRowsBlock, kRowsBlock, 1},
             s.k + first_key * kStep * s.width, s.width, s.dq + row * s.width, s.width, true);
  }
  for (int64_t j = 0; j < keys; ++j) {
    const int64_t begin = on_diagonal ? j : 0;
    if (begin >= queries) break;
    const int64_t key = (first_key + j) * kStep, row = (first_query + begin) * kStep;
    const int64_t at = begin * kStep * kRowsBlock + j * kStep, depth = (queries - begin) * kStep;
    multiply(kStep, s.value_width / kLanes, depth, {t.p + at, 1, kRowsBlock}, s.dout + row * s.value_width,
             s.value_width, s.dv + key * s.value_width, s.value_width, true);
    multiply(kStep, s.width / kLanes, depth, {t.ds + at, 1, kRowsBlock}, s.q + row * s.width, s.width,
             s.dk + key * s.width, s.width, true);
  }
}

/// Writes factor × sums of the given steps to the rows of one head.
void write(RowsOf to_rows, int64_t rows, const float* sums, int64_t stride, float factor, int64_t first_step,
           int64_t end_step) {
  const int64_t width = to_rows.width;
  for (int64_t r = first_step * kStep; r < std::min(end_step * kStep, rows); ++r) {
    float* const to = const_cast<float*>(to_rows.row(r));
    for (int64_t c = 0; c < width; ++c) to[c] = factor * sums[r * stride + c];
  }
}

void write_queries(const Task& task, int64_t member, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  write(query_rows(task, task.operands.dq, p.head(task.unit, member), p.head_dim), p.queries, s.dq, s.width,
        p.scale, first, end);
}

void write_keys(const Task& task, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  write(key_rows(task, task.operands.dk, p.head_dim), p.keys, s.dk, s.width, p.scale, first, end);
  write(key_rows(task, task.operands.dv, p.value_dim), p.keys, s.dv, s.value_width, 1.0f, first, end);
}

}  // namespace

const BackwardPath kBackwardAvx512 = {kBlock,       shared_bytes, thread_bytes,  pack_keys,
                                      pack_queries, accumulate,   write_queries, write_keys};

}  // namespace heddle::kernels::host::attention

#endif

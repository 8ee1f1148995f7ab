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
    const int64_t rows = p.steps() * kStep;
    k_t = carver.take<float>(rows * p.head_dim);
    v_t = carver.take<float>(rows * p.value_dim);
    k = carver.take<float>(rows * width);
    q = carver.take<float>(rows * width);
    dout = carver.take<float>(rows * value_width);
    lse = carver.take<float>(rows);
    delta = carver.take<float>(rows);
    dq = carver.take<float>(rows * width);
    dk = carver.take<float>(rows * width);
    dv = carver.take<float>(rows * value_width);
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
  const RowsOf k = rows_of(task, task.operands.k, p.kv_heads, p.kv_head(task.unit), p.head_dim);
  const RowsOf v = rows_of(task, task.operands.v, p.kv_heads, p.kv_head(task.unit), p.value_dim);
  pack_transposed(k, p.length, first, end, s.k_t);
  pack_transposed(v, p.length, first, end, s.v_t);
  pack_padded(k, p.length, first, end, s.k);
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
  const RowsOf dout = rows_of(task, task.operands.dout, p.heads, head, p.value_dim);
  const RowsOf out = rows_of(task, task.operands.out_saved, p.heads, head, p.value_dim);
  pack_padded(rows_of(task, task.operands.q, p.heads, head, p.head_dim), p.length, first, end, s.q);
  pack_padded(dout, p.length, first, end, s.dout);
  for (int64_t r = first * kStep; r < end * kStep; ++r) {
    // A query that is not there has p = 1 and do = 0: it adds nothing.
    const bool there = r < p.length;
    s.lse[r] = there ? task.operands.lse_saved[(p.first_row(task.unit) + r) * p.heads + head] : 0.0f;
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
  const int64_t keys = std::min(kBlock, p.steps() - first_key), queries = std::min(kBlock, p.steps() - first_query);
  const bool on_diagonal = p.causal && key_block == query_block;
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t row = (first_query + i) * kStep;
    const int64_t end = on_diagonal ? std::min(keys, i + 1) : keys;
    for (int64_t j = 0; j < end; ++j) {
      const int64_t step = first_key + j, at = i * kStep * kRowsBlock + j * kStep;
      multiply(kStep, 2, p.head_dim, {s.q + row * s.width, s.width, 1}, s.k_t + step * kStep * p.head_dim, kStep,
               t.p + at, kRowsBlock, false);
      multiply(kStep, 2, p.value_dim, {s.dout + row * s.value_width, s.value_width, 1},
               s.v_t + step * kStep * p.value_dim, kStep, t.ds + at, kRowsBlock, false);
      weigh(t, s.lse + row, s.delta + row, p.scale, on_diagonal && i == j, bits_below(p.length - step * kStep), at);
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
void write(const Task& task, const float* sums, int64_t stride, float factor, void* tensor, int64_t heads,
           int64_t head, int64_t width, int64_t first_step, int64_t end_step) {
  const Problem& p = task.problem;
  for (int64_t r = first_step * kStep; r < std::min(end_step * kStep, p.length); ++r) {
    float* const to = static_cast<float*>(tensor) + ((p.first_row(task.unit) + r) * heads + head) * width;
    for (int64_t c = 0; c < width; ++c) to[c] = factor * sums[r * stride + c];
  }
}

void write_queries(const Task& task, int64_t member, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  write(task, s.dq, s.width, p.scale, task.operands.dq, p.heads, p.head(task.unit, member), p.head_dim, first, end);
}

void write_keys(const Task& task, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const int64_t head = p.kv_head(task.unit);
  write(task, s.dk, s.width, p.scale, task.operands.dk, p.kv_heads, head, p.head_dim, first, end);
  write(task, s.dv, s.value_width, 1.0f, task.operands.dv, p.kv_heads, head, p.value_dim, first, end);
}

}  // namespace

const BackwardPath kBackwardAvx512 = {kBlock,       shared_bytes, thread_bytes,  pack_keys,
                                      pack_queries, accumulate,   write_queries, write_keys};

}  // namespace heddle::kernels::host::attention

#endif

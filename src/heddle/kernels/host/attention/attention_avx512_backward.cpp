// Backward of attention with AVX-512, in fp32 and bf16.
//
//   p  = exp(scale·q kᵀ − lse)      delta = Σ do·o      dp = do vᵀ      ds = p·(dp − delta)
//   dv = pᵀ do                      dk = scale·dsᵀ q                    dq = scale·ds k
//
// It takes 64 queries × 64 keys at a time. p and ds live in thread scratch, lanes along keys. They lie as rows for
// dq, whose sum runs over keys, and down for dv and dk, whose sums run over queries (the same numbers where a word
// is one). Shared scratch sums dq of a query head and dk, dv of the unit to write them out once.
#include "heddle/kernels/host/attention/attention_problem.h"

#if defined(__x86_64__)

#include <algorithm>

#include "heddle/kernels/host/attention/attention_avx512_pack.h"
#include "heddle/kernels/host/attention/attention_avx512_product.h"

namespace heddle::kernels::host::attention {
namespace {

constexpr int64_t kBlock = 2;                   // steps of queries and of keys
constexpr int64_t kRowsBlock = kBlock * kStep;  // 64

template <class Words>
struct Shared {
  Shared(const Problem& p, std::byte* base)
      : depth(divide_up(p.head_dim, Words::kPer)),
        value_depth(divide_up(p.value_dim, Words::kPer)),
        width(round_up(p.head_dim, kLanes)),
        value_width(round_up(p.value_dim, kLanes)) {
    Carver carver(base);
    const int64_t keys = p.key_steps() * kStep, queries = p.query_steps() * kStep;
    k_t = carver.take<float>(keys * depth);
    v_t = carver.take<float>(keys * value_depth);
    k_down = carver.take<float>(keys / Words::kPer * width);
    q_rows = carver.take<float>(queries * round_up(depth, kLanes));
    dout_rows = carver.take<float>(queries * round_up(value_depth, kLanes));
    q_down = Words::kPer == 1 ? q_rows : carver.take<float>(queries / Words::kPer * width);
    dout_down = Words::kPer == 1 ? dout_rows : carver.take<float>(queries / Words::kPer * value_width);
    lse_log2 = carver.take<float>(queries);
    delta = carver.take<float>(queries);
    dq = carver.take<float>(queries * width);
    dk = carver.take<float>(keys * width);
    dv = carver.take<float>(keys * value_width);
    bytes = carver.used();
  }
  int64_t depth, value_depth;  // words of a row of k and of v
  int64_t width, value_width;  // D and Dv padded to 16
  float *k_t, *v_t;            // transposed: [step][words][32]
  float* k_down;               // [S in words][D padded]
  float *q_rows, *dout_rows;   // [S][words padded]
  float *q_down, *dout_down;   // [S in words][D padded], [S in words][Dv padded]
  float *lse_log2, *delta;     // [S]
  float *dq, *dk, *dv;         // sums: [S][D padded], the same, [S][Dv padded]
  int64_t bytes;
};

template <class Words>
struct Thread {
  explicit Thread(std::byte* base) {
    Carver carver(base);
    scores = carver.take<float>(kRowsBlock * kRowsBlock);
    dp = carver.take<float>(kRowsBlock * kRowsBlock);
    const bool one = Words::kPer == 1;
    p_down = one ? scores : carver.take<float>(kRowsBlock / Words::kPer * kRowsBlock);
    ds_down = one ? dp : carver.take<float>(kRowsBlock / Words::kPer * kRowsBlock);
    ds_rows = one ? dp : carver.take<float>(kRowsBlock * kRowsWords);
    bytes = carver.used();
  }
  static constexpr int64_t kRowsWords = kRowsBlock / Words::kPer;  // of 64 keys
  float *scores, *dp;                                              // [64 queries][64 keys]
  float *p_down, *ds_down;                                         // [64 queries in words][64 keys]
  float* ds_rows;                                                  // [64 queries][64 keys in words]
  int64_t bytes;
};

template <class Words>
int64_t shared_bytes(const Problem& p) {
  return Shared<Words>(p, nullptr).bytes;
}
template <class Words>
int64_t thread_bytes(const Problem&) {
  return Thread<Words>(nullptr).bytes;
}

void clear(float* sums, int64_t first_step, int64_t end_step, int64_t width) {
  std::memset(sums + first_step * kStep * width, 0,
              static_cast<size_t>((end_step - first_step) * kStep * width) * 4);
}

template <class Words>
void pack_keys(const Task& task, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared<Words> s(p, task.shared);
  const RowsOf<Words> k = key_rows<Words>(task, task.operands.k, p.head_dim);
  const RowsOf<Words> v = key_rows<Words>(task, task.operands.v, p.value_dim);
  pack_transposed(k, first, end, s.k_t + first * kStep * s.depth);
  pack_transposed(v, first, end, s.v_t + first * kStep * s.value_depth);
  pack_down(k, first, end, s.k_down + first * kStep / Words::kPer * s.width);
  clear(s.dk, first, end, s.width);
  clear(s.dv, first, end, s.value_width);
}

template <class Words>
void pack_queries(const Task& task, int64_t member, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared<Words> s(p, task.shared);
  const int64_t head = p.head(task.unit, member);
  const RowsOf<Words> q = query_rows<Words>(task, task.operands.q, head, p.head_dim);
  const RowsOf<Words> dout = query_rows<Words>(task, task.operands.dout, head, p.value_dim);
  pack_rows(q, first, end, s.q_rows + first * kStep * q.padded_depth());
  pack_rows(dout, first, end, s.dout_rows + first * kStep * dout.padded_depth());
  if constexpr (Words::kPer > 1) {
    pack_down(q, first, end, s.q_down + first * kStep / Words::kPer * s.width);
    pack_down(dout, first, end, s.dout_down + first * kStep / Words::kPer * s.value_width);
  }
  weigh_rows<Words>(task, head, first, end, s.lse_log2, s.delta);
  clear(s.dq, first, end, s.width);
}

/// p and ds of query step i × key step j. `masked`: row r sees the keys of allowed[r].
template <class Words, bool masked>
HEDDLE_AVX512 void weigh(const Thread<Words>& t, const float* lse_log2, const float* delta, float scale_log2,
                         const uint32_t* allowed, int64_t i, int64_t j) {
  const __m512 scale = _mm512_set1_ps(scale_log2);
  for (int64_t r = 0; r < kStep; r += Words::kPer) {
    __m512 p[Words::kPer][2], ds[Words::kPer][2];
#pragma GCC unroll 2
    for (int64_t m = 0; m < Words::kPer; ++m) {
      const __m512 lse = _mm512_set1_ps(lse_log2[r + m]), delta_x = _mm512_set1_ps(delta[r + m]);
      const int64_t at = (i * kStep + r + m) * kRowsBlock + j * kStep;
#pragma GCC unroll 2
      for (int n = 0; n < 2; ++n) {
        __m512 weight = Words::exp2(_mm512_fmsub_ps(_mm512_load_ps(t.scores + at + n * kLanes), scale, lse));
        if (masked) weight = _mm512_maskz_mov_ps(static_cast<__mmask16>(allowed[r + m] >> (n * kLanes)), weight);
        p[m][n] = weight;
        ds[m][n] = _mm512_mul_ps(weight, _mm512_sub_ps(_mm512_load_ps(t.dp + at + n * kLanes), delta_x));
      }
    }
    const int64_t down = (i * kStep + r) / Words::kPer * kRowsBlock + j * kStep;
    if constexpr (Words::kPer == 1) {
#pragma GCC unroll 2
      for (int n = 0; n < 2; ++n) {
        _mm512_store_ps(t.p_down + down + n * kLanes, p[0][n]);
        _mm512_store_ps(t.ds_down + down + n * kLanes, ds[0][n]);
      }
    } else {
      const __m512 p_rows[2] = {Words::pairs_across(p[0][0], p[0][1]), Words::pairs_across(p[1][0], p[1][1])};
      const __m512 ds_rows[2] = {Words::pairs_across(ds[0][0], ds[0][1]), Words::pairs_across(ds[1][0], ds[1][1])};
      _mm512_store_ps(t.p_down + down, Words::template pairs_down<0>(p_rows[0], p_rows[1]));
      _mm512_store_ps(t.p_down + down + kLanes, Words::template pairs_down<1>(p_rows[0], p_rows[1]));
      _mm512_store_ps(t.ds_down + down, Words::template pairs_down<0>(ds_rows[0], ds_rows[1]));
      _mm512_store_ps(t.ds_down + down + kLanes, Words::template pairs_down<1>(ds_rows[0], ds_rows[1]));
      float* const rows = t.ds_rows + (i * kStep + r) * t.kRowsWords + j * kLanes;
      _mm512_store_ps(rows, ds_rows[0]);
      _mm512_store_ps(rows + t.kRowsWords, ds_rows[1]);
    }
  }
}

template <class Words>
void accumulate(const Task& task, int64_t, int64_t key_block, int64_t query_block) {
  const Problem& p = task.problem;
  const Shared<Words> s(p, task.shared);
  const Thread<Words> t(task.thread);
  const int64_t first_key = key_block * kBlock, first_query = query_block * kBlock;  // in steps
  const int64_t keys = std::min(kBlock, p.key_steps() - first_key);
  const int64_t queries = std::min(kBlock, p.query_steps() - first_query);
  const bool on_diagonal = p.has_diagonal() && first_key == p.diagonal(first_query);
  const int64_t q_stride = round_up(s.depth, kLanes), dout_stride = round_up(s.value_depth, kLanes);
  const float scale_log2 = p.scale * static_cast<float>(kLog2E);
  constexpr int64_t kStepWords = kStep / Words::kPer;
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t row = (first_query + i) * kStep;
    const int64_t end = on_diagonal ? std::min(keys, i + 1) : keys;
    for (int64_t j = 0; j < end; ++j) {
      const int64_t step = first_key + j, at = i * kStep * kRowsBlock + j * kStep;
      multiply<Words>(kStep, 2, s.depth, {s.q_rows + row * q_stride, q_stride, 1}, s.k_t + step * kStep * s.depth,
                      kStep, t.scores + at, kRowsBlock, false);
      multiply<Words>(kStep, 2, s.value_depth, {s.dout_rows + row * dout_stride, dout_stride, 1},
                      s.v_t + step * kStep * s.value_depth, kStep, t.dp + at, kRowsBlock, false);
      const bool diagonal = on_diagonal && i == j;
      const int64_t there = p.keys - step * kStep;
      const bool hides = p.hides(task.unit, first_query + i, step * kStep),
                 masked = diagonal || hides || there < kStep;
      uint32_t allowed[kStep];
      for (int64_t r = 0; r < kStep && masked; ++r) {
        allowed[r] = bits_below(there) & (diagonal ? bits_below(r + 1) : ~0u);
        if (hides && row + r < p.queries) {
          allowed[r] &= ~bits_below(p.first_seen[p.first_query(task.unit) + row + r] - step * kStep);
        }
      }
      const auto weigh_step = masked ? weigh<Words, true> : weigh<Words, false>;
      weigh_step(t, s.lse_log2 + row, s.delta + row, scale_log2, allowed, i, j);
    }
    multiply<Words>(kStep, s.width / kLanes, end * kStepWords,
                    {t.ds_rows + i * kStep * t.kRowsWords, t.kRowsWords, 1},
                    s.k_down + first_key * kStepWords * s.width, s.width, s.dq + row * s.width, s.width, true);
  }
  for (int64_t j = 0; j < keys; ++j) {
    const int64_t begin = on_diagonal ? j : 0;
    if (begin >= queries) break;
    const int64_t key = (first_key + j) * kStep, row = (first_query + begin) * kStepWords;  // row: in words
    const int64_t at = begin * kStepWords * kRowsBlock + j * kStep, depth = (queries - begin) * kStepWords;
    multiply<Words>(kStep, s.value_width / kLanes, depth, {t.p_down + at, 1, kRowsBlock},
                    s.dout_down + row * s.value_width, s.value_width, s.dv + key * s.value_width, s.value_width,
                    true);
    multiply<Words>(kStep, s.width / kLanes, depth, {t.ds_down + at, 1, kRowsBlock}, s.q_down + row * s.width,
                    s.width, s.dk + key * s.width, s.width, true);
  }
}

/// Writes factor × sums of the given steps, and what was there before, to the rows of one head.
template <class Words>
HEDDLE_AVX512 void write(const RowsOf<Words>& to_rows, const float* sums, int64_t stride, float factor,
                         int64_t first_step, int64_t end_step, const RowsOf<Fp32>* before = nullptr) {
  const __m512 factor_x = _mm512_set1_ps(factor);
  for (int64_t r = first_step * kStep; r < std::min(end_step * kStep, to_rows.length); ++r) {
    auto* const to = const_cast<typename Words::Element*>(to_rows.row(r));
    for (int64_t c = 0; c < to_rows.width; c += kLanes) {
      const __m512 x = _mm512_mul_ps(factor_x, _mm512_load_ps(sums + r * stride + c));
      Words::store(to + c, to_rows.width - c, before == nullptr ? x : _mm512_add_ps(before->words(r, c), x));
    }
  }
}

template <class Words>
void write_queries(const Task& task, int64_t member, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared<Words> s(p, task.shared);
  const int64_t head = p.head(task.unit, member);
  const RowsOf<Fp32> sum = query_rows<Fp32>(task, task.operands.dq_before, head, p.head_dim);
  const RowsOf<Fp32>* const before = task.operands.dq_before != nullptr ? &sum : nullptr;
  if (task.operands.wide_dq) {
    write(query_rows<Fp32>(task, task.operands.dq, head, p.head_dim), s.dq, s.width, p.scale, first, end, before);
  } else {
    write(query_rows<Words>(task, task.operands.dq, head, p.head_dim), s.dq, s.width, p.scale, first, end, before);
  }
}

template <class Words>
void write_keys(const Task& task, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared<Words> s(p, task.shared);
  write(key_rows<Words>(task, task.operands.dk, p.head_dim), s.dk, s.width, p.scale, first, end);
  write(key_rows<Words>(task, task.operands.dv, p.value_dim), s.dv, s.value_width, 1.0f, first, end);
}

template <class Words>
constexpr BackwardPath kPath = {kBlock,
                                shared_bytes<Words>,
                                thread_bytes<Words>,
                                pack_keys<Words>,
                                pack_queries<Words>,
                                accumulate<Words>,
                                write_queries<Words>,
                                write_keys<Words>};

}  // namespace

const BackwardPath kBackwardAvx512 = kPath<Fp32>;
const BackwardPath kBackwardAvx512Widened = kPath<Bf16Widened>;
const BackwardPath kBackwardAvx512Bf16 = kPath<Bf16Pairs>;

}  // namespace heddle::kernels::host::attention

#endif

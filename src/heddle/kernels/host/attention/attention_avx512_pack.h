// Copies of operands in the forms that the attention products read, in words (attention_avx512_words.h). Padding is
// always written, never assumed. With rows of a matrix x and its columns c:
//
//   rows         words along c, as x lies              the factor A of a product that sums over c
//   transposed   panels of 32 rows, words along c      B of a product that sums over c
//   down         words along the rows                  B of a product that sums over rows
#pragma once

#include <cstring>

#include "heddle/kernels/host/attention/attention_avx512_words.h"
#include "heddle/kernels/host/attention/attention_problem.h"
#include "heddle/kernels/host/transpose_words.h"

namespace heddle::kernels::host::attention {

/// The rows of one head of one sequence.
template <class Words>
struct RowsOf {
  using Element = typename Words::Element;
  const Element* data;
  int64_t stride, width, length;
  const Element* row(int64_t at) const { return data + at * stride; }
  /// Words along the columns: how many, and padded to whole vectors.
  int64_t depth() const { return divide_up(width, Words::kPer); }
  int64_t padded_depth() const { return round_up(depth(), kLanes); }
  /// 16 words of a row; zero beyond the matrix.
  HEDDLE_AVX512_INLINE __m512 words(int64_t at, int64_t word) const {
    if (at >= length) return _mm512_setzero_ps();
    return Words::load_words(row(at) + word * Words::kPer, width - word * Words::kPer);
  }
};

template <class Words>
RowsOf<Words> query_rows(const Task& task, const void* tensor, int64_t head, int64_t width) {
  const Problem& p = task.problem;
  const int64_t stride = p.heads * width;
  return {static_cast<const typename Words::Element*>(tensor) + p.first_query(task.unit) * stride + head * width,
          stride, width, p.queries};
}

template <class Words>
RowsOf<Words> key_rows(const Task& task, const void* tensor, int64_t width) {
  const Problem& p = task.problem;
  const int64_t stride = p.kv_heads * width;
  return {static_cast<const typename Words::Element*>(tensor) + p.first_key(task.unit) * stride +
              p.kv_head(task.unit) * width,
          stride, width, p.keys};
}

/// Makes, for the rows of some steps, what the backward reads: lse in units of log2, and delta = Σ do·o.
template <class Words>
HEDDLE_AVX512 void weigh_rows(const Task& task, int64_t head, int64_t first_step, int64_t end_step, float* lse_log2,
                              float* delta) {
  const Problem& p = task.problem;
  const RowsOf<Words> dout = query_rows<Words>(task, task.operands.dout, head, p.value_dim);
  const RowsOf<Words> out = query_rows<Words>(task, task.operands.out_saved, head, p.value_dim);
  const float* const lse = task.operands.lse_saved + p.first_query(task.unit) * p.heads + head;
  for (int64_t r = first_step * kStep; r < end_step * kStep; ++r) {
    // A query that is not there has p = 1 and do = 0: it adds nothing.
    const bool there = r < p.queries;
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < p.value_dim && there; i += kLanes)
      sum = _mm512_fmadd_ps(Words::load(dout.row(r) + i, p.value_dim - i),
                            Words::load(out.row(r) + i, p.value_dim - i), sum);
    lse_log2[r] = there ? lse[r * p.heads] * static_cast<float>(kLog2E) : 0.0f;
    delta[r] = _mm512_reduce_add_ps(sum);
  }
}

/// to[rows of the steps][words padded to 16].
template <class Words>
HEDDLE_AVX512 void pack_rows(const RowsOf<Words>& from, int64_t first_step, int64_t end_step, float* to) {
  const int64_t stride = from.padded_depth();
  for (int64_t r = first_step * kStep; r < end_step * kStep; ++r, to += stride) {
    for (int64_t word = 0; word < stride; word += kLanes) _mm512_store_ps(to + word, from.words(r, word));
  }
}

/// to[step][words][32].
template <class Words>
HEDDLE_AVX512 void pack_transposed(const RowsOf<Words>& from, int64_t first_step, int64_t end_step, float* to) {
  const int64_t depth = from.depth();
  for (int64_t step = first_step; step < end_step; ++step, to += depth * kStep) {
    for (int64_t half = 0; half < kStep; half += kLanes) {
      for (int64_t word = 0; word < depth; word += kLanes) {
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) r[i] = _mm512_castps_si512(from.words(step * kStep + half + i, word));
        transpose_words(r);
        float* const panel = to + word * kStep + half;
        const int64_t filled = std::min<int64_t>(depth - word, 16);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          if (i < filled) _mm512_store_si512(panel + i * kStep, r[i]);
        }
      }
    }
  }
}

/// to[rows of the steps, in words][columns padded to 16].
template <class Words>
HEDDLE_AVX512 void pack_down(const RowsOf<Words>& from, int64_t first_step, int64_t end_step, float* to) {
  const int64_t columns = round_up(from.width, kLanes);
  for (int64_t r = first_step * kStep; r < end_step * kStep; r += Words::kPer, to += columns) {
    for (int64_t c = 0; c < columns; c += kLanes) {
      if constexpr (Words::kPer == 1) {
        _mm512_store_ps(to + c, from.words(r, c));
      } else {
        const auto column = [&](int64_t at) HEDDLE_AVX512 {
          if (at >= from.length) return _mm512_setzero_si512();
          return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes_below(from.width - c), from.row(at) + c));
        };
        _mm512_store_si512(to + c, _mm512_or_si512(column(r), _mm512_slli_epi32(column(r + 1), 16)));
      }
    }
  }
}

}  // namespace heddle::kernels::host::attention

// The register block of the AVX-512 engines: C[rows,32] += A·B for 1 to 12 rows. Included by the files that define
// HEDDLE_512_FEATURES, once for processors with bf16 dot products and once for those without. Everything here is
// compiled for those features and called only after the processor said that it has them.
//
// B is a panel of 32 columns, [step][32] words of four bytes. The form says what a word is:
//   floats   a step is one depth d, a word of A or of B an fp32 number
//   pairs    a step is two depths, a word a pair of bf16, multiplied by the dot product of pairs
//   widened  a step is two depths, a word of B a pair of bf16, widened in the register; A is fp32, two words a step
// A is read where it lies, row by row, a word broadcast at a time, or is packed, [step][12] words.
//
// 12 × 2 vectors of C, two of B and one of A take 27 registers, and 24 products take 14 loads, so that two
// multiply-add units stay busy. An element of C is one chain of additions in increasing d.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "heddle/kernels/host/gemm/gemm_block.h"

#define HEDDLE_512 [[gnu::target(HEDDLE_512_FEATURES)]] inline

namespace heddle::kernels::host::avx512_engine {
namespace {

constexpr int64_t kStripRows = 12;
constexpr int64_t kBlockWords = kStripRows * kPanelColumns;
constexpr int64_t depth_of_step(Form form) { return form == Form::floats ? 1 : 2; }

/// The lowest `count` lanes, of 16 or 32, for any `count`.
HEDDLE_512 __mmask32 first_lanes_32(int64_t count) {
  return count >= 32 ? 0xffffffffu : static_cast<__mmask32>((1u << (count < 0 ? 0 : count)) - 1u);
}
HEDDLE_512 __mmask16 first_lanes_16(int64_t count) {
  return static_cast<__mmask16>(first_lanes_32(count < 16 ? count : 16));
}

#ifndef HEDDLE_512_HAS_BF16
/// 16 numbers rounded to bf16, to nearest even; a NaN stays one.
HEDDLE_512 __m256i narrow_16(__m512 numbers) {
  const __m512i bits = _mm512_castps_si512(numbers);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(numbers, numbers, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
}
#endif

/// 32 numbers rounded to bf16, to nearest even.
HEDDLE_512 __m512i narrow(__m512 low, __m512 high) {
#ifdef HEDDLE_512_HAS_BF16
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
#else
  return _mm512_inserti64x4(_mm512_castsi256_si512(narrow_16(low)), narrow_16(high), 1);
#endif
}

struct BlockCall {
  int64_t steps = 0;
  const std::byte* a = nullptr;
  int64_t a_stride = 0;            // bytes from row to row, when A is read in place
  const uint32_t* tail = nullptr;  // one more step, packed, for a depth that ends amid a pair; or null
  const uint32_t* b = nullptr;
  const uint32_t* fetch = nullptr;  // a line asked for at each step, some words apart, when A is read in place
  int64_t fetch_stride = 0;
  float* sums = nullptr;  // [12][32], where sums wait between runs of the depth
  bool load = false;      // the sums go on; else they begin at zero
  bool store = false;     // the sums wait; else they are finished and written to C
  std::byte* c = nullptr;
  int64_t c_stride = 0;  // bytes
  int64_t columns = kPanelColumns;
  bool narrow = false;          // C is bf16
  bool add = false;             // to C, which is f32
  const float* bias = nullptr;  // [columns]
};

/// Writes a row of finished sums to C.
HEDDLE_512 void finish_row(const BlockCall& call, __m512 low, __m512 high, std::byte* to) {
  const __mmask16 low_lanes = first_lanes_16(call.columns), high_lanes = first_lanes_16(call.columns - 16);
  if (call.bias) {
    low = _mm512_add_ps(low, _mm512_maskz_loadu_ps(low_lanes, call.bias));
    high = _mm512_add_ps(high, _mm512_maskz_loadu_ps(high_lanes, call.bias + 16));
  }
  if (call.narrow) {
    _mm512_mask_storeu_epi16(to, first_lanes_32(call.columns), narrow(low, high));
    return;
  }
  if (call.add) {
    low = _mm512_add_ps(_mm512_maskz_loadu_ps(low_lanes, to), low);
    high = _mm512_add_ps(_mm512_maskz_loadu_ps(high_lanes, to + 64), high);
  }
  _mm512_mask_storeu_ps(to, low_lanes, low);
  _mm512_mask_storeu_ps(to + 64, high_lanes, high);
}

HEDDLE_512 __m512i broadcast(const std::byte* word) {
  int32_t bits;
  std::memcpy(&bits, word, 4);
  __m512i all = _mm512_set1_epi32(bits);
  // One load for both products: the compiler would rather load the word with each.
  asm("" : "+v"(all));
  return all;
}

template <Form kForm>
HEDDLE_512 __m512 multiply_add(__m512 sum, __m512i a, __m512i b) {
#ifdef HEDDLE_512_HAS_BF16
  if constexpr (kForm == Form::pairs) return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
#endif
  return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
}

template <Form kForm, int kRows, bool kInPlace>
[[gnu::target(HEDDLE_512_FEATURES), gnu::noinline]] void multiply_block(const BlockCall& call) {
  __m512 left[kRows], right[kRows];
  if (call.load) {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      left[r] = _mm512_loadu_ps(call.sums + r * kPanelColumns);
      right[r] = _mm512_loadu_ps(call.sums + r * kPanelColumns + 16);
    }
  } else {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) left[r] = right[r] = _mm512_setzero_ps();
  }
  if (!call.store) {
    const std::byte* to = call.c;
    for (int r = 0; r < kRows; ++r, to += call.c_stride) {
      __builtin_prefetch(to, 1, 3);
      if (!call.narrow) __builtin_prefetch(to + 64, 1, 3);
    }
  }
  const uint32_t* b = call.b;
  if constexpr (kInPlace) {
    const int64_t stride = call.a_stride;
    const uint32_t* fetch = call.fetch;
    const std::byte* rows[4] = {call.a, call.a + 3 * stride, call.a + 6 * stride, call.a + 9 * stride};
    for (int64_t step = 0; step < call.steps; ++step, b += kPanelColumns) {
      const __m512i b_left = _mm512_loadu_si512(b), b_right = _mm512_loadu_si512(b + 16);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const __m512i a = broadcast(rows[r / 3] + r % 3 * stride);
        left[r] = multiply_add<kForm>(left[r], a, b_left);
        right[r] = multiply_add<kForm>(right[r], a, b_right);
      }
#pragma GCC unroll 4
      for (auto& row : rows) row += 4;
      _mm_prefetch(fetch, _MM_HINT_T1);
      fetch += call.fetch_stride;
    }
  } else {
    const std::byte* a = call.a;
    for (int64_t step = 0; step < call.steps; ++step, b += kPanelColumns) {
      const __m512i b_left = _mm512_loadu_si512(b), b_right = _mm512_loadu_si512(b + 16);
      const auto multiply = [&](__m512i left_words, __m512i right_words)
          __attribute__((target(HEDDLE_512_FEATURES), always_inline)) {
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
          const __m512i word = broadcast(a + r * 4);
          left[r] = multiply_add<kForm>(left[r], word, left_words);
          right[r] = multiply_add<kForm>(right[r], word, right_words);
        }
        a += kStripRows * 4;
      };
      if constexpr (kForm == Form::widened) {
        const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
        multiply(_mm512_slli_epi32(b_left, 16), _mm512_slli_epi32(b_right, 16));
        multiply(_mm512_and_si512(b_left, upper), _mm512_and_si512(b_right, upper));
      } else {
        multiply(b_left, b_right);
      }
    }
  }
  if (kInPlace && call.tail) {
    const __m512i b_left = _mm512_loadu_si512(b), b_right = _mm512_loadu_si512(b + 16);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const __m512i a = _mm512_set1_epi32(static_cast<int>(call.tail[r]));
      left[r] = multiply_add<kForm>(left[r], a, b_left);
      right[r] = multiply_add<kForm>(right[r], a, b_right);
    }
  }
  if (call.store) {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      _mm512_storeu_ps(call.sums + r * kPanelColumns, left[r]);
      _mm512_storeu_ps(call.sums + r * kPanelColumns + 16, right[r]);
    }
    return;
  }
  std::byte* to = call.c;
  if (call.columns == kPanelColumns && !call.bias && !call.add) {
    if (call.narrow) {
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r, to += call.c_stride) _mm512_storeu_si512(to, narrow(left[r], right[r]));
    } else {
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r, to += call.c_stride) {
        _mm512_storeu_ps(to, left[r]);
        _mm512_storeu_ps(to + 64, right[r]);
      }
    }
    return;
  }
  if (call.columns == kPanelColumns && call.add) {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r, to += call.c_stride) {
      _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), left[r]));
      _mm512_storeu_ps(to + 64, _mm512_add_ps(_mm512_loadu_ps(to + 64), right[r]));
    }
    return;
  }
  __m512 both[kRows][2];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) both[r][0] = left[r], both[r][1] = right[r];
  for (int r = 0; r < kRows; ++r, to += call.c_stride) finish_row(call, both[r][0], both[r][1], to);
}

/// The block of `rows` rows, 1 to 12.
template <Form kForm, bool kInPlace>
HEDDLE_512 void multiply_rows(int64_t rows, const BlockCall& call) {
  using Function = void (*)(const BlockCall&);
  static constexpr Function kFunctions[kStripRows] = {
      multiply_block<kForm, 1, kInPlace>,  multiply_block<kForm, 2, kInPlace>,
      multiply_block<kForm, 3, kInPlace>,  multiply_block<kForm, 4, kInPlace>,
      multiply_block<kForm, 5, kInPlace>,  multiply_block<kForm, 6, kInPlace>,
      multiply_block<kForm, 7, kInPlace>,  multiply_block<kForm, 8, kInPlace>,
      multiply_block<kForm, 9, kInPlace>,  multiply_block<kForm, 10, kInPlace>,
      multiply_block<kForm, 11, kInPlace>, multiply_block<kForm, 12, kInPlace>};
  kFunctions[rows - 1](call);
}

}  // namespace
}  // namespace heddle::kernels::host::avx512_engine

// fp32 operands in bf16 tiles: each number is the sum of three bf16 parts, and a product of two numbers that of the
// six leading products of parts. Included only by the amx files.
//
//   a = a₀ + a₁ + a₂,  a₀ = nearest bf16(a), a₁ = nearest bf16(a − a₀), a₂ = a − a₀ − a₁, which is exact in bf16
//   a·b ≈ a₂b₀ + a₁b₀ + a₁b₁ + a₀b₁ + a₀b₂ + a₀b₀; what is left out is at most about 2⁻²⁴ of |a·b|
//
// Source: Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision
// computations", 2019. The parts are exact while a₂ is not a denormal number: from |a| = 2⁻¹⁰² on; smaller ones
// lose bits, below 2⁻¹²⁶ all. An infinity becomes NaN, as ∞ − ∞ is in a₁, and so does what rounds to a bf16
// infinity: 2¹²⁸(1 − 2⁻⁹) and more.
//
// A unit is 32 × 32 numbers of a matrix, fp32 or bf16; in split form it is three step pairs (see gemm_amx_tiles.h),
// one of each part. The order of k within a step of 32 is free, if both operands have the same. The two k that make
// a pair are here i and i + 16, because then two vectors of 16 k become one of pairs without any shuffle.
#pragma once

#include "heddle/kernels/host/gemm/gemm.h"
#include "heddle/kernels/host/gemm/gemm_amx_tiles.h"

namespace heddle::kernels::host::amx {

constexpr int64_t kSplitElements = 3 * kPairElements;

/// Cuts off the leading part of 16 numbers: returns it, as fp32, and leaves the rest.
HEDDLE_AMX __m512i take_part(__m512& numbers) {
  const __m512i half = _mm512_set1_epi32(0x8000), mask = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const __m512i part = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(numbers), half), mask);
  numbers = _mm512_sub_ps(numbers, _mm512_castsi512_ps(part));
  return part;
}

/// Pairs (first[i], second[i]) of the upper halves.
HEDDLE_AMX __m512i join(__m512i first, __m512i second) {
  return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(first, 16), second);
}

/// The three parts of 16 pairs, a step pair apart.
HEDDLE_AMX void store_parts(__m512 first, __m512 second, uint16_t* out) {
  const __m512i high = take_part(first), other_high = take_part(second);
  _mm512_store_si512(out, join(high, other_high));
  const __m512i middle = take_part(first), other_middle = take_part(second);
  _mm512_store_si512(out + kPairElements, join(middle, other_middle));
  _mm512_store_si512(out + 2 * kPairElements, join(_mm512_castps_si512(first), _mm512_castps_si512(second)));
}

/// 16 numbers; lanes at `count` and beyond are zero and not read.
HEDDLE_AMX __m512 load_16(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps(first_lanes_16(count), from);
}
HEDDLE_AMX __m512 load_16(const uint16_t* from, int64_t count) {
  const __m256i narrow = _mm256_maskz_loadu_epi16(first_lanes_16(count), from);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
}

/// One row of a unit whose rows are the tiles' rows and whose columns are k: A of a forward product.
template <class T>
HEDDLE_AMX void split_row(const T* row, int64_t columns, uint16_t* out) {
  store_parts(load_16(row, columns), load_16(row + kTile, columns - kTile), out);
}

/// A unit whose rows are k: B of an input or a weight gradient. Of the unit `rows` × `columns` are there (32 or
/// more: all of it); the rest is not read and becomes zeros. So too below.
template <class T>
HEDDLE_AMX void split_down(const T* unit, int64_t stride, int64_t rows, int64_t columns, uint16_t* out) {
  const auto load = [&](int64_t row, int64_t column) HEDDLE_AMX_LAMBDA {
    return row < rows ? load_16(unit + row * stride + column, columns - column) : _mm512_setzero_ps();
  };
  for (int64_t i = 0; i < kTile; ++i) {
    for (int64_t column = 0; column < kStep; column += kTile) {
      store_parts(load(i, column), load(i + kTile, column), out + column * kStep + i * kStep);
    }
  }
}

/// A unit that must be transposed. kRowsAreDepth: its rows are k and its columns the rows of tiles (A of a weight
/// gradient). Else its rows are the columns of tiles and its columns k (B of a forward product).
template <bool kRowsAreDepth, class T>
HEDDLE_AMX void split_turned(const T* unit, int64_t stride, int64_t rows, int64_t columns, uint16_t* out) {
  for (int64_t half = 0; half < kStep; half += kTile) {
    __m512i low[16], high[16];
    const auto load = [&](__m512i numbers[16], int64_t row, int64_t column) HEDDLE_AMX_LAMBDA {
      for (int64_t i = 0; i < kTile; ++i) {
        numbers[i] = row + i < rows
                         ? _mm512_castps_si512(load_16(unit + (row + i) * stride + column, columns - column))
                         : _mm512_setzero_si512();
      }
      transpose_words(numbers);
    };
    load(low, kRowsAreDepth ? 0 : half, kRowsAreDepth ? half : 0);
    load(high, kRowsAreDepth ? kTile : half, kRowsAreDepth ? half : kTile);
    for (int64_t i = 0; i < kTile; ++i) {
      store_parts(_mm512_castsi512_ps(low[i]), _mm512_castsi512_ps(high[i]), out + half * kStep + i * kStep);
    }
  }
}

/// The unit at (row, column) of a matrix of either type.
enum class UnitForm : uint8_t { down, turned_rows_are_depth, turned };
template <UnitForm kForm>
HEDDLE_AMX_TARGET [[gnu::noinline]] static void split_unit(const Rows& matrix, int64_t row, int64_t column,
                                                           int64_t rows, int64_t columns, uint16_t* out) {
  const auto split = [&](const auto* unit) HEDDLE_AMX_LAMBDA {
    if constexpr (kForm == UnitForm::down) {
      split_down(unit, matrix.stride, rows, columns, out);
    } else {
      split_turned<kForm == UnitForm::turned_rows_are_depth>(unit, matrix.stride, rows, columns, out);
    }
  };
  const int64_t at = row * matrix.stride + column;
  if (matrix.dtype == Dtype::bf16) {
    split(static_cast<const uint16_t*>(matrix.data) + at);
  } else {
    split(static_cast<const float*>(matrix.data) + at);
  }
}

/// Splits rows × (steps of 32 k) of A, some chunks of 32 k a step of the products meanwhile.
struct SplitAhead {
  Rows a;
  int64_t row = 0, rows = 0;  // of a
  int64_t depth = 0, depth_end = 0;
  uint16_t* out = nullptr;
  int64_t each_step = 0;
  int64_t done = 0;  // rows of this step

  /// Rows row_begin … + row_count and the depths depth_begin … depth_stop, to [step][part][32 rows][32 k].
  HEDDLE_AMX_TARGET void set(const Rows& matrix, int64_t row_begin, int64_t row_count, int64_t depth_begin,
                             int64_t depth_stop, uint16_t* to, int64_t chunks_a_step) {
    a = matrix;
    row = row_begin;
    rows = row_count;
    depth = depth_begin;
    depth_end = depth_stop;
    out = to;
    each_step = chunks_a_step;
    done = 0;
  }
  HEDDLE_AMX_TARGET void step() {
    for (int64_t i = 0; i < each_step && depth < depth_end; ++i) split_chunk();
  }
  HEDDLE_AMX_TARGET void finish() {
    while (depth < depth_end) split_chunk();
  }
  HEDDLE_AMX_TARGET void split_chunk() {
    const int64_t at = (row + done) * a.stride + depth, count = depth_end - depth;
    if (a.dtype == Dtype::bf16) {
      split_row(static_cast<const uint16_t*>(a.data) + at, count, out + done * kStep);
    } else {
      split_row(static_cast<const float*>(a.data) + at, count, out + done * kStep);
    }
    if (++done < rows) return;
    done = 0;
    depth += kStep;
    out += kSplitElements;
  }
};

}  // namespace heddle::kernels::host::amx

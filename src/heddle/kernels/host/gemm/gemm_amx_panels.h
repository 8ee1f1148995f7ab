// The panels of the amx engines' B, and how rows are brought into them. Included only by the amx files.
//
// A panel is 32 columns of B: ceil(depth/32) step pairs (see gemm_amx_tiles.h), zeros beyond the edges, so that an
// odd depth or width costs nothing but the padding. In the split form (see gemm_amx_split.h) three of them, one for
// each part, take the place of one.
#pragma once

#include "heddle/kernels/host/gemm/gemm_amx_split.h"
#include "heddle/kernels/host/gemm/gemm_amx_tiles.h"
#include "heddle/kernels/host/gemm/gemm_block.h"

namespace heddle::kernels::host::amx {

constexpr int64_t kBlock = kPanelColumns;  // rows and columns of a block

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Elements of a step of a panel, and of the panel.
constexpr int64_t step_elements(Numbers numbers) { return parts_of(numbers) * kPairElements; }
constexpr int64_t panel_elements(Numbers numbers, int64_t depth) {
  return ceil_div(depth, kStep) * step_elements(numbers);
}

/// Step pairs of the depths depth_begin .. depth_end and the panel that begins at `column`, to `out`.
template <class T>
HEDDLE_AMX void pack_panel(const T* b, int64_t stride, bool transposed, int64_t depth_begin, int64_t depth_end,
                           int64_t column, int64_t columns, uint16_t* out) {
  const int64_t wide = smaller(columns - column, kBlock);
  for (int64_t d = depth_begin; d < depth_end; d += kStep, out += kPairElements) {
    const int64_t deep = smaller(depth_end - d, kStep);
    if (!transposed) {
      interleave_pairs(b + d * stride + column, stride, deep, wide, out);
      continue;
    }
    for (int64_t half = 0; half < 2; ++half) {
      __m512i rows[16];
      for (int64_t i = 0; i < kTile; ++i) {
        const int64_t c = half * kTile + i;
        rows[i] = c < wide ? load_bf16(b + (column + c) * stride + d, deep) : _mm512_setzero_si512();
      }
      transpose_words(rows);
      for (int64_t i = 0; i < kTile; ++i) _mm512_store_si512(out + half * kTileElements + i * 32, rows[i]);
    }
  }
}

/// Packs a panel of either type, in either form.
template <Numbers kNumbers>
HEDDLE_AMX void pack_panel(const Rows& b, bool transposed, int64_t depth_begin, int64_t depth_end, int64_t column,
                           int64_t columns, uint16_t* out) {
  if constexpr (kNumbers == Numbers::split_fp32) {
    const int64_t wide = columns - column;
    for (int64_t d = depth_begin; d < depth_end; d += kStep, out += kSplitElements) {
      if (transposed) {
        split_unit<UnitForm::turned>(b, column, d, wide, depth_end - d, out);
      } else {
        split_unit<UnitForm::down>(b, d, column, depth_end - d, wide, out);
      }
    }
  } else if (b.dtype == Dtype::bf16) {
    pack_panel(static_cast<const uint16_t*>(b.data), b.stride, transposed, depth_begin, depth_end, column, columns,
               out);
  } else {
    pack_panel(static_cast<const float*>(b.data), b.stride, transposed, depth_begin, depth_end, column, columns,
               out);
  }
}

}  // namespace heddle::kernels::host::amx

// The fp32 engines: any of fp32 and bf16 operands, fp32 arithmetic.
//
// One scheme for all three products and all instruction sets: C[M,N] += A·B with both operands copied, widened,
// into contiguous panels, A as [depth][12] and B as [depth][32], padded with zeros, over runs of the depth; the
// block kernel of the instruction set multiplies 12 × 32 blocks whose sums wait in fp32 between runs, so that each
// is one chain in increasing depth. Panels of a packed weight are B panels of the whole depth.
#include <algorithm>
#include <cstring>

#include "heddle/kernels/host/gemm_block.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace heddle::kernels::host::fp32 {
namespace {

constexpr int64_t kRun = 256;         // depth
constexpr int64_t kRowsAtOnce = 264;  // rows of A that are packed together
constexpr int64_t kRowsTogether = 8;  // of dy
constexpr int64_t kBlock = kBlockRows * kPanelColumns;

constexpr int64_t kLeftBytes = kRowsAtOnce * kRun * 4;
constexpr int64_t kRightBytes = kMostPieceColumns * kRun * 4;
constexpr int64_t kSumsBytes = kRowsAtOnce * std::max(kMostPieceColumns, kMostWgradColumns) * 4;
static_assert(kLeftBytes + kRightBytes + kSumsBytes <= kPieceScratchBytes);
static_assert(kRowsAtOnce % kBlockRows == 0);

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// out[d][i] = from[i][d] for i < kWidth.
template <int64_t kWidth>
void transpose_strip(const float* from, int64_t stride, int64_t depth, float* out) {
  int64_t d = 0;
#if defined(__SSE2__)
  for (; d + 4 <= depth; d += 4) {
    for (int64_t i = 0; i < kWidth; i += 4) {
      const float* at = from + i * stride + d;
      __m128 a = _mm_loadu_ps(at), b = _mm_loadu_ps(at + stride);
      __m128 c = _mm_loadu_ps(at + 2 * stride), e = _mm_loadu_ps(at + 3 * stride);
      _MM_TRANSPOSE4_PS(a, b, c, e);
      float* to = out + d * kWidth + i;
      _mm_storeu_ps(to, a);
      _mm_storeu_ps(to + kWidth, b);
      _mm_storeu_ps(to + 2 * kWidth, c);
      _mm_storeu_ps(to + 3 * kWidth, e);
    }
  }
#endif
  for (; d < depth; ++d) {
    for (int64_t i = 0; i < kWidth; ++i) out[d * kWidth + i] = from[i * stride + d];
  }
}
template <int64_t kWidth>
void transpose_strip(const bf16* from, int64_t stride, int64_t depth, float* out) {
  for (int64_t d = 0; d < depth; ++d) {
    for (int64_t i = 0; i < kWidth; ++i) out[d * kWidth + i] = static_cast<float>(from[i * stride + d]);
  }
}

/// out[d][i] = element (i, d) for i < width <= kPadded, zeros up to kPadded. Along: i runs along a row of the
/// matrix (d picks the row); else i picks the row and d runs along it.
template <int64_t kPadded, class T>
void pack_strip(const T* from, int64_t stride, bool along, int64_t depth, int64_t width, float* out) {
  if (along && width == kPadded) {
    for (int64_t d = 0; d < depth; ++d, from += stride, out += kPadded) {
      __builtin_prefetch(from + 8 * stride);
      for (int64_t i = 0; i < kPadded; ++i) out[i] = static_cast<float>(from[i]);
    }
    return;
  }
  if (along) {
    for (int64_t d = 0; d < depth; ++d, out += kPadded) {
      for (int64_t i = 0; i < width; ++i) out[i] = static_cast<float>(from[d * stride + i]);
      for (int64_t i = width; i < kPadded; ++i) out[i] = 0;
    }
    return;
  }
  if (width == kPadded) return transpose_strip<kPadded>(from, stride, depth, out);
  for (int64_t i = 0; i < width; ++i) {
    const T* row = from + i * stride;
    for (int64_t d = 0; d < depth; ++d) out[d * kPadded + i] = static_cast<float>(row[d]);
  }
  for (int64_t i = width; i < kPadded; ++i) {
    for (int64_t d = 0; d < depth; ++d) out[d * kPadded + i] = 0;
  }
}

/// The strip that begins at (index, depth) of `m`.
template <int64_t kPadded>
void pack_strip(const Rows& m, bool along, int64_t index, int64_t depth_begin, int64_t depth, int64_t width,
                float* out) {
  const int64_t at = along ? depth_begin * m.stride + index : index * m.stride + depth_begin;
  if (m.dtype == Dtype::bf16) {
    pack_strip<kPadded>(static_cast<const bf16*>(m.data) + at, m.stride, along, depth, width, out);
  } else {
    pack_strip<kPadded>(static_cast<const float*>(m.data) + at, m.stride, along, depth, width, out);
  }
}

/// Writes the valid part of a block, adding the bias, rounded to C's type.
void write_block(const float* sums, int64_t rows, int64_t columns, const float* bias, const OutRows& c, int64_t row,
                 int64_t column) {
  if (!bias && c.dtype == Dtype::f32 && columns == kPanelColumns) {
    float* to = static_cast<float*>(c.data) + row * c.stride + column;
    for (int64_t r = 0; r < rows; ++r) std::memcpy(to + r * c.stride, sums + r * kPanelColumns, kPanelColumns * 4);
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    float sum[kPanelColumns];
    for (int64_t i = 0; i < kPanelColumns; ++i) sum[i] = sums[r * kPanelColumns + i];
    if (bias) {
      for (int64_t i = 0; i < columns; ++i) sum[i] += bias[column + i];
    }
    const int64_t at = (row + r) * c.stride + column;
    if (c.dtype == Dtype::bf16) {
      bf16* to = static_cast<bf16*>(c.data) + at;
      for (int64_t i = 0; i < columns; ++i) to[i] = bf16(sum[i]);
    } else {
      std::memcpy(static_cast<float*>(c.data) + at, sum, static_cast<size_t>(columns) * 4);
    }
  }
}

}  // namespace

int64_t panel_bytes(int64_t depth, int64_t columns) {
  return ceil_div(columns, kPanelColumns) * kPanelColumns * depth * 4;
}

void pack(const PackPiece& piece) {
  for (int64_t column = piece.column_begin; column < piece.column_end; column += kPanelColumns) {
    float* to = reinterpret_cast<float*>(piece.panels) + column * piece.depth;
    const int64_t wide = std::min(piece.column_end - column, kPanelColumns);
    pack_strip<kPanelColumns>(piece.b, !piece.b_transposed, column, 0, piece.depth, wide, to);
    if (piece.round_to_bf16) {
      for (int64_t i = 0; i < piece.depth * kPanelColumns; ++i) to[i] = static_cast<float>(bf16(to[i]));
    }
  }
}

void product(BlockKernel kernel, const ProductPiece& piece) {
  float* const left = reinterpret_cast<float*>(piece.scratch);
  float* const right = reinterpret_cast<float*>(piece.scratch + kLeftBytes);
  float* const sums = reinterpret_cast<float*>(piece.scratch + kLeftBytes + kRightBytes);
  const int64_t first_panel = piece.column_begin / kPanelColumns;
  const int64_t panels = ceil_div(piece.column_end, kPanelColumns) - first_panel;
  for (int64_t row = 0; row < piece.rows; row += kRowsAtOnce) {
    const int64_t rows = std::min(piece.rows - row, kRowsAtOnce);
    const int64_t strips = ceil_div(rows, kBlockRows);
    std::memset(sums, 0, static_cast<size_t>(strips * panels * kBlock) * 4);
    for (int64_t depth = 0; depth < piece.depth; depth += kRun) {
      const int64_t deep = std::min(piece.depth - depth, kRun);
      for (int64_t s = 0; s < strips; ++s) {
        pack_strip<kBlockRows>(piece.a, false, row + s * kBlockRows, depth, deep,
                               std::min(rows - s * kBlockRows, kBlockRows), left + s * kBlockRows * kRun);
      }
      for (int64_t p = 0; p < panels; ++p) {
        const int64_t column = (first_panel + p) * kPanelColumns;
        const float* b;
        if (piece.panels) {
          b = reinterpret_cast<const float*>(piece.panels) + column * piece.depth + depth * kPanelColumns;
        } else {
          float* to = right + p * kPanelColumns * kRun;
          pack_strip<kPanelColumns>(piece.b, !piece.b_transposed, column, depth, deep,
                                    std::min(piece.column_end - column, kPanelColumns), to);
          b = to;
        }
        for (int64_t s = 0; s < strips; ++s) {
          kernel(deep, left + s * kBlockRows * kRun, b, sums + (s * panels + p) * kBlock);
        }
      }
    }
    for (int64_t s = 0; s < strips; ++s) {
      for (int64_t p = 0; p < panels; ++p) {
        const int64_t column = (first_panel + p) * kPanelColumns;
        write_block(sums + (s * panels + p) * kBlock, std::min(rows - s * kBlockRows, kBlockRows),
                    std::min(piece.column_end - column, kPanelColumns), piece.bias, piece.c, row + s * kBlockRows,
                    column);
      }
    }
  }
}

void wgrad(BlockKernel kernel, const WgradPiece& piece, std::byte* scratch) {
  float* const left = reinterpret_cast<float*>(scratch);
  float* const right = reinterpret_cast<float*>(scratch + kLeftBytes);
  float* const sums = reinterpret_cast<float*>(scratch + kLeftBytes + kRightBytes);
  const int64_t panels = ceil_div(piece.k_end - piece.k_begin, kPanelColumns);
  for (int64_t n = piece.n_begin; n < piece.n_end; n += kRowsAtOnce) {
    const int64_t tall = std::min(piece.n_end - n, kRowsAtOnce);
    const int64_t strips = ceil_div(tall, kBlockRows);
    std::memset(sums, 0, static_cast<size_t>(strips * panels * kBlock) * 4);
    const auto each_row = [&](auto&& visit) {
      for (int64_t r = 0; r < tall; ++r) {
        for (int64_t p = 0; p < panels; ++p) {
          const int64_t k = piece.k_begin + p * kPanelColumns;
          visit(piece.dw + (n + r) * piece.dw_stride + k,
                sums + (r / kBlockRows * panels + p) * kBlock + r % kBlockRows * kPanelColumns,
                std::min(piece.k_end - k, kPanelColumns));
        }
      }
    };
    for (int64_t t = 0; t < piece.rows; t += kRun) {
      const int64_t deep = std::min(piece.rows - t, kRun);
      // A few rows at a time, so that the lines that strips share are still near.
      for (int64_t d = 0; d < deep; d += kRowsTogether) {
        for (int64_t s = 0; s < strips; ++s) {
          pack_strip<kBlockRows>(piece.dy, true, n + s * kBlockRows, t + d, std::min(deep - d, kRowsTogether),
                                 std::min(tall - s * kBlockRows, kBlockRows),
                                 left + s * kBlockRows * kRun + d * kBlockRows);
        }
      }
      for (int64_t p = 0; p < panels; ++p) {
        const int64_t k = piece.k_begin + p * kPanelColumns;
        pack_strip<kPanelColumns>(piece.x, true, k, t, deep, std::min(piece.k_end - k, kPanelColumns), right);
        for (int64_t s = 0; s < strips; ++s) {
          kernel(deep, left + s * kBlockRows * kRun, right, sums + (s * panels + p) * kBlock);
        }
      }
    }
    if (piece.overwrite) {
      each_row([](float* dw, const float* sum, int64_t count) { std::copy_n(sum, count, dw); });
    } else {
      each_row([](float* dw, const float* sum, int64_t count) {
        if (count == kPanelColumns) {
          for (int64_t i = 0; i < kPanelColumns; ++i) dw[i] += sum[i];
        } else {
          for (int64_t i = 0; i < count; ++i) dw[i] += sum[i];
        }
      });
    }
  }
}

}  // namespace heddle::kernels::host::fp32

// The engine neon_bf16: bf16 products of aarch64 (BFMMLA), 2 × 4 by 4 × 2 numbers at a time with fp32 sums.
//
// Both operands are copied into groups of 8 rows (of A) or 8 columns (of B) by four of the depth, [depth/4][8][4],
// zeros beyond the edges. So one form serves all three products, and a block of 8 × 8 sums stands in 16 registers.
// B is copied for 8 columns and a run of the depth at a time, A for all rows of the piece. Sums wait between runs
// in C itself where it is fp32 and takes whole blocks of columns, else in scratch.
//
// An instruction adds two pairs of products to a sum, one after the other, rounding to odd and flushing denormals.
// An element is one chain in increasing depth, in links of four.
#include "heddle/kernels/host/gemm/gemm_block.h"
#if defined(__aarch64__)
#include <algorithm>
#include <cstring>

#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+bf16")
#include <arm_neon.h>

namespace heddle::kernels::host::neon {
namespace {

constexpr int64_t kRun = 512;  // depth, a multiple of kDeep
constexpr int64_t kDeep = 4;
constexpr int64_t kWide = 8;  // rows or columns of a group
constexpr int64_t kGroup = kWide * kRun;
constexpr int64_t kRowsAtOnce = 256;

constexpr int64_t kRightBytes = kGroup * 2;
constexpr int64_t kLeftBytes = kRowsAtOnce * kRun * 2;
constexpr int64_t kSumsBytes = kRowsAtOnce * std::max(kMostPieceColumns, kMostWgradColumns) * 4;
static_assert(kRightBytes + kLeftBytes + kSumsBytes <= kPieceScratchBytes);
static_assert(kMostPieceRows <= kRowsAtOnce && kRun % kDeep == 0);

struct Room {
  bf16 *right, *left;
  float* sums;
  explicit Room(std::byte* scratch)
      : right(reinterpret_cast<bf16*>(scratch)),
        left(reinterpret_cast<bf16*>(scratch + kRightBytes)),
        sums(reinterpret_cast<float*>(scratch + kRightBytes + kLeftBytes)) {}
};

int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

/// A matrix of which index i of a group and depth d stand at i · stride + d, or where `along` at d · stride + i.
struct Operand {
  const bf16* data;
  int64_t stride;
  bool along;
};

/// out[d/4][i][d%4] = element (i, d) for i < width <= 8, d < depth; zeros up to 8 and to a multiple of 4.
void copy_group(const Operand& m, int64_t index, int64_t depth_begin, int64_t depth, int64_t width, bf16* out) {
  const bf16* from = m.data + (m.along ? depth_begin * m.stride + index : index * m.stride + depth_begin);
  int64_t d = 0;
  if (width == kWide && m.along) {
    for (; d + kDeep <= depth; d += kDeep, out += kWide * kDeep) {
      const auto* at = reinterpret_cast<const uint16_t*>(from + d * m.stride);
      const uint16x8x4_t rows = {
          {vld1q_u16(at), vld1q_u16(at + m.stride), vld1q_u16(at + 2 * m.stride), vld1q_u16(at + 3 * m.stride)}};
      vst4q_u16(reinterpret_cast<uint16_t*>(out), rows);
    }
  } else if (width == kWide) {
    for (; d + kDeep <= depth; d += kDeep, out += kWide * kDeep) {
      for (int64_t i = 0; i < kWide; ++i)
        std::memcpy(out + i * kDeep, from + i * m.stride + d, kDeep * sizeof(bf16));
    }
  }
  for (; d < depth; d += kDeep, out += kWide * kDeep) {
    for (int64_t i = 0; i < kWide; ++i) {
      for (int64_t e = 0; e < kDeep; ++e) {
        const bool there = i < width && d + e < depth;
        out[i * kDeep + e] = there ? from[m.along ? (d + e) * m.stride + i : i * m.stride + d + e] : bf16(0.0f);
      }
    }
  }
}

/// C[8,8] = (from C or zero) + A · Bᵀ, over `steps` of four of the depth; written to `to`, or added to it.
void multiply(int64_t steps, const bf16* a, const bf16* b, const float* from, int64_t from_stride, float* to,
              int64_t to_stride, bool add) {
  float32x4_t sum[4][4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      sum[i][j] = vdupq_n_f32(0);
      if (from != nullptr) {
        const float* at = from + 2 * i * from_stride + 2 * j;
        sum[i][j] = vcombine_f32(vld1_f32(at), vld1_f32(at + from_stride));
      }
    }
  }
  const auto* left = reinterpret_cast<const bfloat16_t*>(a);
  const auto* right = reinterpret_cast<const bfloat16_t*>(b);
  for (int64_t s = 0; s < steps; ++s, left += kWide * kDeep, right += kWide * kDeep) {
    bfloat16x8_t rows[4], columns[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      rows[i] = vld1q_bf16(left + i * 2 * kDeep);
      columns[i] = vld1q_bf16(right + i * 2 * kDeep);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sum[i][j] = vbfmmlaq_f32(sum[i][j], rows[i], columns[j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j += 2) {
      float* const upper = to + 2 * i * to_stride + 2 * j;
      float* const lower = upper + to_stride;
      float32x4_t first = vcombine_f32(vget_low_f32(sum[i][j]), vget_low_f32(sum[i][j + 1]));
      float32x4_t second = vcombine_f32(vget_high_f32(sum[i][j]), vget_high_f32(sum[i][j + 1]));
      if (add) {
        first = vaddq_f32(vld1q_f32(upper), first);
        second = vaddq_f32(vld1q_f32(lower), second);
      }
      vst1q_f32(upper, first);
      vst1q_f32(lower, second);
    }
  }
}

/// C[rows, columns] = A · B over the whole depth. The sums of whole groups of 8 rows and of the first `direct`
/// columns stand in `c`, which they are added to when `add` (one run only). The others stand in scratch.
struct Sums {
  int64_t rows, columns, direct, stride;  // stride: of scratch
  float* c;
  int64_t c_stride;
  bool add;
  bool in_c(int64_t row, int64_t column) const { return column < direct && row + kWide <= rows; }
};

void product_of(const Room& room, const Operand& a, int64_t row, const Operand& b, int64_t column, int64_t depth,
                const Sums& sums) {
  for (int64_t begin = 0; begin < depth || begin == 0; begin += kRun) {
    const int64_t deep = std::min(depth - begin, kRun), steps = (deep + kDeep - 1) / kDeep;
    for (int64_t r = 0; r < sums.rows; r += kWide) {
      copy_group(a, row + r, begin, deep, std::min(sums.rows - r, kWide), room.left + r * kRun);
    }
    for (int64_t c = 0; c < sums.columns; c += kWide) {
      copy_group(b, column + c, begin, deep, std::min(sums.columns - c, kWide), room.right);
      for (int64_t r = 0; r < sums.rows; r += kWide) {
        const bool in_c = sums.in_c(r, c);
        const int64_t stride = in_c ? sums.c_stride : sums.stride;
        float* const to = (in_c ? sums.c : room.sums) + r * stride + c;
        multiply(steps, room.left + r * kRun, room.right, begin == 0 ? nullptr : to, stride, to, stride,
                 in_c && sums.add);
      }
    }
  }
}

/// Calls write(row, column, count, sums) for the parts of rows whose sums stand in scratch.
template <class Write>
void each_in_scratch(const Room& room, const Sums& sums, const Write& write) {
  for (int64_t r = 0; r < sums.rows; ++r) {
    const int64_t first = sums.in_c(r / kWide * kWide, 0) ? sums.direct : 0;
    if (first < sums.columns) write(r, first, sums.columns - first, room.sums + r * sums.stride + first);
  }
}

}  // namespace

void product(const ProductPiece& piece) {
  const Room room(piece.scratch);
  const int64_t columns = piece.column_end - piece.column_begin;
  const bool in_place = piece.bias == nullptr && piece.c.dtype == Dtype::f32;
  Sums sums{piece.rows, columns, in_place ? columns / kWide * kWide : 0, round_up(columns, kWide), nullptr,
            0,          false};
  if (in_place) {
    sums.c = static_cast<float*>(piece.c.data) + piece.column_begin;
    sums.c_stride = piece.c.stride;
  }
  product_of(room, {static_cast<const bf16*>(piece.a.data), piece.a.stride, false}, 0,
             {static_cast<const bf16*>(piece.b.data), piece.b.stride, !piece.b_transposed}, piece.column_begin,
             piece.depth, sums);
  each_in_scratch(room, sums, [&](int64_t row, int64_t column, int64_t count, const float* from) {
    const int64_t at = row * piece.c.stride + piece.column_begin + column;
    const float* bias = piece.bias != nullptr ? piece.bias + piece.column_begin + column : nullptr;
    for (int64_t i = 0; i < count; ++i) {
      const float sum = bias != nullptr ? from[i] + bias[i] : from[i];
      if (piece.c.dtype == Dtype::bf16) {
        static_cast<bf16*>(piece.c.data)[at + i] = bf16(sum);
      } else {
        static_cast<float*>(piece.c.data)[at + i] = sum;
      }
    }
  });
}

void wgrad(const WgradPiece& piece, std::byte* scratch) {
  const Room room(scratch);
  const int64_t columns = piece.k_end - piece.k_begin;
  const Operand dy{static_cast<const bf16*>(piece.dy.data), piece.dy.stride, true};
  const Operand x{static_cast<const bf16*>(piece.x.data), piece.x.stride, true};
  // Finished sums are added once: runs before the last one leave theirs in dw only where it is overwritten.
  const int64_t direct = piece.overwrite || piece.rows <= kRun ? columns / kWide * kWide : 0;
  for (int64_t n = piece.n_begin; n < piece.n_end; n += kRowsAtOnce) {
    float* const dw = piece.dw + n * piece.dw_stride + piece.k_begin;
    const Sums sums{std::min(piece.n_end - n, kRowsAtOnce),
                    columns,
                    direct,
                    round_up(columns, kWide),
                    dw,
                    piece.dw_stride,
                    !piece.overwrite};
    product_of(room, dy, n, x, piece.k_begin, piece.rows, sums);
    each_in_scratch(room, sums, [&](int64_t row, int64_t column, int64_t count, const float* from) {
      float* const to = dw + row * piece.dw_stride + column;
      for (int64_t i = 0; i < count; ++i) to[i] = piece.overwrite ? from[i] : to[i] + from[i];
    });
  }
}

}  // namespace heddle::kernels::host::neon
#pragma GCC pop_options

#else
namespace heddle::kernels::host::neon {
void product(const ProductPiece&) { internal_error("neon_bf16 on another processor"); }
void wgrad(const WgradPiece&, std::byte*) { internal_error("neon_bf16 on another processor"); }
}  // namespace heddle::kernels::host::neon
#endif

// Operands of products rounded to eight bits. See fp8_kernels.h; the roundings are those of ops/fp8_blocks.h, to
// the bit.
#include "heddle/kernels/cuda/e4m3.h"
#include "heddle/kernels/cuda/fp8_kernels.h"
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/products/group_tiles.h"

namespace heddle::kernels::cuda {

namespace {

constexpr uint32_t kInfinity = 0x7f800000u, kNotFinite = 255;
constexpr int kLeastExponent = -117, kMostExponent = 119;

/// The magnitude, or infinity instead of NaN, which a maximum would not show.
HEDDLE_DEVICE float size_of(float x) {
  const uint32_t size = word_of(x) & 0x7fffffffu;
  return float_of_word(size > kInfinity ? kInfinity : size);
}

HEDDLE_DEVICE uint32_t scale_for(float most) {
  const uint32_t word = word_of(most);
  if (word >= kInfinity) return kNotFinite;
  const int exponent = static_cast<int>(word >> 23) - 126 - ((word & 0x7fffffu) <= 0x600000u ? 9 : 8);
  return static_cast<uint32_t>(min(max(exponent, kLeastExponent), kMostExponent) + 127);
}
HEDDLE_DEVICE float scale_of(uint32_t byte) {
  return byte == kNotFinite ? not_a_number() : float_of_word(byte << 23);
}

/// x in units of its scale, to the nearest e4m3.
HEDDLE_DEVICE float nearest(float x, uint32_t scale) {
  return scale == kNotFinite ? not_a_number() : nearest_e4m3(x * float_of_word((254u - scale) << 23));
}
/// The number of a byte, or of X, of its own.
template <class X, bool bytes>
HEDDLE_DEVICE float number_at(const Fp8ColumnsArgs& args, int64_t row, int64_t column) {
  const int64_t at = row * args.K + column;
  if (!bytes) return to_float(static_cast<const X*>(args.x_TK)[at]);
  return number_of(static_cast<const uint8_t*>(args.x_TK)[at]) *
         scale_of(args.scales[row * args.blocks + column / kFp8Block]);
}
HEDDLE_DEVICE Bf16 in_block(float x, uint32_t scale) { return rounded<Bf16>(nearest(x, scale) * scale_of(scale)); }

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kFp8Threads) fp8_rows(Fp8RowsArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * (kFp8Threads / kWarp) + threadIdx.x / kWarp;
  if (block >= args.T * args.blocks) return;
  const int64_t row = block / args.blocks, first = block % args.blocks * kFp8Block;
  const X* x = static_cast<const X*>(args.x_TK) + row * args.K;
  float own[kFp8Block / kWarp], most = 0;
  HEDDLE_UNROLL
  for (int i = 0; i < kFp8Block / kWarp; ++i) {
    const int64_t column = first + i * kWarp + lane;
    own[i] = column < args.K ? to_float(x[column]) : 0.0f;
    most = fmaxf(most, size_of(own[i]));
  }
  const uint32_t scale = scale_for(warp_max(most));
  HEDDLE_UNROLL
  for (int i = 0; i < kFp8Block / kWarp; ++i) {
    const int64_t column = first + i * kWarp + lane, at = row * args.K + column;
    if (column >= args.K) continue;
    if (args.to_TK != nullptr) {
      args.to_TK[at] = in_block(own[i], scale);
    } else {
      args.q_TK[at] = byte_of(nearest(own[i], scale));
    }
  }
  if (lane == 0 && args.scales != nullptr) args.scales[block] = static_cast<uint8_t>(scale);
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kFp8Threads) fp8_numbers(Fp8NumbersArgs args) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.T * args.K; i += step) {
    const float scale = scale_of(args.scales[i / args.K * args.blocks + i % args.K / kFp8Block]);
    args.to_TK[i] = rounded<Bf16>(number_of(args.q_TK[i]) * scale);
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kFp8Threads) fp8_weight_numbers(Fp8WeightNumbersArgs args) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x, each = args.N * args.K;
  const int64_t down = (args.N + kFp8Block - 1) / kFp8Block, across = (args.K + kFp8Block - 1) / kFp8Block;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.E * each; i += step) {
    const int64_t e = i / each, n = i % each / args.K, k = i % args.K;
    const int64_t row = n / kFp8Block, column = k / kFp8Block;
    const int64_t block = args.turned ? column * down + row : row * across + column;
    const uint8_t byte = args.q[args.turned ? e * each + k * args.N + n : i];
    args.to_ENK[i] = rounded<Bf16>(number_of(byte) * scale_of(args.scales[e * down * across + block]));
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kFp8Threads) fp8_weight(Fp8WeightArgs args) {
  HEDDLE_SHARED(float, of_warps, kFp8Threads / kWarp);
  const int64_t matrix = static_cast<int64_t>(blockIdx.z) * args.N * args.K;
  const X* w = static_cast<const X*>(args.w_ENK) + matrix;
  const int64_t n0 = static_cast<int64_t>(blockIdx.y) * kFp8Block,
                k0 = static_cast<int64_t>(blockIdx.x) * kFp8Block;
  const int column = static_cast<int>(threadIdx.x) % kFp8Block, first = static_cast<int>(threadIdx.x) / kFp8Block;
  const int64_t k = k0 + column, end = min(args.N, n0 + kFp8Block);
  float most = 0;
  for (int64_t n = n0 + first; n < end && k < args.K; n += kFp8Threads / kFp8Block) {
    most = fmaxf(most, size_of(to_float(w[n * args.K + k])));
  }
  const uint32_t scale = scale_for(block_max(most, of_warps));
  if (args.to_ENK != nullptr) {
    for (int64_t n = n0 + first; n < end && k < args.K; n += kFp8Threads / kFp8Block) {
      args.to_ENK[matrix + n * args.K + k] = in_block(to_float(w[n * args.K + k]), scale);
    }
    return;
  }
  if (threadIdx.x == 0) {
    const int64_t e = blockIdx.z, across = gridDim.x, down = gridDim.y, i = blockIdx.y, j = blockIdx.x;
    args.scales[e * across * down + (args.turned ? j * down + i : i * across + j)] = static_cast<uint8_t>(scale);
  }
  if (!args.turned) {
    for (int64_t n = n0 + first; n < end && k < args.K; n += kFp8Threads / kFp8Block) {
      args.q[matrix + n * args.K + k] = byte_of(nearest(to_float(w[n * args.K + k]), scale));
    }
    return;
  }
  // Rows are read and columns are written side by side.
  HEDDLE_SHARED(uint8_t, turned, kFp8Block * (kFp8Block + 4));
  for (int64_t n = n0 + first; n < end && k < args.K; n += kFp8Threads / kFp8Block) {
    turned[column * (kFp8Block + 4) + (n - n0)] = byte_of(nearest(to_float(w[n * args.K + k]), scale));
  }
  __syncthreads();
  for (int64_t row = first; row < min(static_cast<int64_t>(kFp8Block), args.K - k0);
       row += kFp8Threads / kFp8Block) {
    if (n0 + column < end)
      args.q[matrix + (k0 + row) * args.N + n0 + column] = turned[row * (kFp8Block + 4) + column];
  }
}

template <class X, bool bytes>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kFp8Block) fp8_columns(Fp8ColumnsArgs args) {
  HEDDLE_SHARED(int32_t, found, 2);
  int64_t begin = static_cast<int64_t>(blockIdx.x) * kFp8Block, end = args.T;
  if (args.offsets != nullptr) {
    if (threadIdx.x == 0) found[0] = -1;
    __syncthreads();
    if (threadIdx.x < kWarp) find_tile(args.offsets, args.groups, kFp8Block, blockIdx.x, found, found + 1);
    __syncthreads();
    if (found[0] < 0) return;
    begin = args.offsets[found[0]] + static_cast<int64_t>(found[1]) * kFp8Block;
    end = args.offsets[found[0] + 1];
  }
  end = min(end, begin + kFp8Block);
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kFp8Block + threadIdx.x;
  if (column >= args.K) return;
  float most = 0;
  for (int64_t row = begin; row < end; ++row) most = fmaxf(most, size_of(number_at<X, bytes>(args, row, column)));
  const uint32_t scale = scale_for(most);
  for (int64_t row = begin; row < end; ++row) {
    args.to_TK[row * args.K + column] = in_block(number_at<X, bytes>(args, row, column), scale);
  }
}

#define FP8(X)                                                   \
  template HEDDLE_KERNEL void fp8_rows<X>(Fp8RowsArgs args);     \
  template HEDDLE_KERNEL void fp8_weight<X>(Fp8WeightArgs args); \
  template HEDDLE_KERNEL void fp8_columns<X, false>(Fp8ColumnsArgs args);
FP8(float)
FP8(Bf16)
#undef FP8
template HEDDLE_KERNEL void fp8_columns<Bf16, true>(Fp8ColumnsArgs args);

}  // namespace heddle::kernels::cuda

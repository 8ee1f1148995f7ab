// Matrix products on the tensor cores (bf16) or by fused multiply-adds (f32): tiles of 128×128, three stages of
// asynchronous copies. With experts, a block finds its own tile from the offsets on the device, so that the host
// need not know how many rows each has.
#include "heddle/kernels/cuda/products/group_tiles.h"
#include "heddle/kernels/cuda/products/product_kernels.h"
#include "heddle/kernels/cuda/products/tile.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int kWarpsN = 4, kWarpsM = 2;
constexpr int kFragmentsM = kProductM / kWarpsM / 16, kFragmentsN = kProductN / kWarpsN / 8;

}  // namespace

template <class X, bool a_by_k, bool b_by_k>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kProductThreads) product(ProductArgs args) {
  constexpr int kDepth = 64 / static_cast<int>(sizeof(X));
  constexpr int kPitchA = (a_by_k ? kProductM : kDepth) + kRowPad<X>;
  constexpr int kPitchB = (b_by_k ? kProductN : kDepth) + kRowPad<X>;
  constexpr int kTileA = kPitchA * (a_by_k ? kDepth : kProductM);
  constexpr int kTileB = kPitchB * (b_by_k ? kDepth : kProductN);
  HEDDLE_DYNAMIC_SHARED(shared);
  HEDDLE_SHARED(int32_t, found, 2);
  X* tiles = reinterpret_cast<X*>(shared);

  int64_t group = 0, row_tile = blockIdx.y;
  if (args.cut == Groups::rows) {
    if (threadIdx.x == 0) found[0] = -1;
    __syncthreads();
    if (threadIdx.x < kWarp) find_tile(args.offsets, args.groups, kProductM, blockIdx.y, found, found + 1);
    __syncthreads();
    if (found[0] < 0) return;
    group = found[0];
    row_tile = found[1];
  } else if (args.cut != Groups::none) {
    group = blockIdx.z;
  }
  const bool sized = args.cut == Groups::rows || args.cut == Groups::sums;
  const int64_t begin = sized ? args.offsets[group] : 0, count = sized ? args.offsets[group + 1] - begin : 0;
  const int64_t M = args.cut == Groups::rows ? count : args.M, K = args.cut == Groups::sums ? count : args.K;
  const int64_t m0 = row_tile * kProductM, n0 = static_cast<int64_t>(blockIdx.x) * kProductN;
  const X* a = static_cast<const X*>(args.a);
  const X* b = static_cast<const X*>(args.b);
  int64_t c_at = 0;
  if (args.cut == Groups::rows) {
    a += begin * (a_by_k ? 1 : args.a_pitch);
    b += group * args.group_stride;
    c_at = begin * args.c_pitch;
  } else if (args.cut == Groups::sums) {
    a += begin * (a_by_k ? args.a_pitch : 1);
    b += begin * (b_by_k ? args.b_pitch : 1);
    c_at = group * args.group_stride;
  } else if (args.cut == Groups::batch) {
    a += group * M * K;
    b += group * args.N * K;
    c_at = group * M * args.N;
  }
  // From here on a is where this block's rows begin, b its columns.
  a += m0 * (a_by_k ? 1 : args.a_pitch);
  b += n0 * (b_by_k ? 1 : args.b_pitch);
  const bool wide_a = wide_rows<X>(a, args.a_pitch), wide_b = wide_rows<X>(b, args.b_pitch);

  const auto fetch = [&](int64_t k, int stage) {
    X* tile_a = tiles + stage * (kTileA + kTileB);
    X* tile_b = tile_a + kTileA;
    if (k < K) {
      if (a_by_k) {
        copy_tile(tile_a, kPitchA, kDepth, kProductM, a + k * args.a_pitch, args.a_pitch, K - k, M - m0, wide_a);
      } else {
        copy_tile(tile_a, kPitchA, kProductM, kDepth, a + k, args.a_pitch, M - m0, K - k, wide_a);
      }
      if (b_by_k) {
        copy_tile(tile_b, kPitchB, kDepth, kProductN, b + k * args.b_pitch, args.b_pitch, K - k, args.N - n0,
                  wide_b);
      } else {
        copy_tile(tile_b, kPitchB, kProductN, kDepth, b + k, args.b_pitch, args.N - n0, K - k, wide_b);
      }
    }
    end_copies();
  };

  float c[kFragmentsM][kFragmentsN][4];
  HEDDLE_UNROLL
  for (int m = 0; m < kFragmentsM; ++m) {
    HEDDLE_UNROLL
    for (int n = 0; n < kFragmentsN; ++n) c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0;
  }
  const int warp = static_cast<int>(threadIdx.x) / kTileLanes, lane = static_cast<int>(threadIdx.x) % kTileLanes;
  const int warp_m = warp / kWarpsN * (kProductM / kWarpsM), warp_n = warp % kWarpsN * (kProductN / kWarpsN);
  for (int s = 0; s < kProductStages - 1; ++s) fetch(s * kDepth, s);
  int stage = 0;
  for (int64_t k = 0; k < K; k += kDepth) {
    wait_for_copies<kProductStages - 2>();
    __syncthreads();  // everybody's copies of this stage are there, and nobody reads the stage fetched next
    fetch(k + (kProductStages - 1) * kDepth, (stage + kProductStages - 1) % kProductStages);
    const X* tile_a = tiles + stage * (kTileA + kTileB);
    const X* tile_b = tile_a + kTileA;
    multiply_tile<a_by_k, b_by_k>(c, tile_a + (a_by_k ? warp_m : warp_m * kPitchA), kPitchA,
                                  tile_b + (b_by_k ? warp_n : warp_n * kPitchB), kPitchB, kDepth);
    stage = (stage + 1) % kProductStages;
  }

  HEDDLE_UNROLL
  for (int m = 0; m < kFragmentsM; ++m) {
    HEDDLE_UNROLL
    for (int n = 0; n < kFragmentsN; ++n) {
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int64_t row = m0 + warp_m + m * 16 + lane / 4 + i / 2 * 8;
        const int64_t column = n0 + warp_n + n * 8 + lane % 4 * 2 + i % 2;
        if (row >= M || column >= args.N) continue;
        const int64_t at = c_at + row * args.c_pitch + column;
        float value = c[m][n][i];
        if (args.bias_N != nullptr) value += args.bias_N[column];
        if (args.wide) {
          float* to = static_cast<float*>(args.c) + at;
          *to = args.add ? *to + value : value;
        } else if (args.narrow) {
          static_cast<Bf16*>(args.c)[at] = rounded<Bf16>(value);
        } else {
          static_cast<X*>(args.c)[at] = rounded<X>(value);
        }
      }
    }
  }
}

#define PRODUCT(X)                                                        \
  template HEDDLE_KERNEL void product<X, false, false>(ProductArgs args); \
  template HEDDLE_KERNEL void product<X, false, true>(ProductArgs args);  \
  template HEDDLE_KERNEL void product<X, true, true>(ProductArgs args);
PRODUCT(float)
PRODUCT(Bf16)
#undef PRODUCT

}  // namespace heddle::kernels::cuda

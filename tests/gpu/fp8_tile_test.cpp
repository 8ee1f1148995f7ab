// What a warpgroup does around its matrix instruction for eight-bit numbers, on the emulator's threads: which
// scales belong to which of its numbers, where they are stored. The instruction itself, which the emulator doesn't
// know, is done here by its definition.
#include "heddle/kernels/cuda/fp8_tile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "heddle/base/dtype.h"
#include "heddle/base/random.h"
#include "heddle/kernels/cuda/fp8.h"
#include "heddle/kernels/cuda/launch.h"
#include "heddle/ops/fp8_blocks.h"

namespace heddle::kernels::cuda {
namespace {

struct TileArgs {
  Fp8ProductArgs product;
  const uint8_t *a, *b;
};

void tiles(TileArgs args) {
  const ProductArgs& p = args.product.product;
  const int64_t tiles_n = (p.N + kFp8TileN - 1) / kFp8TileN;
  // 32 lanes have 16 rows, as on Hopper.
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const Fp8Tile tile = fp8_tile(p, blockIdx.x / tiles_n);
  if (tile.rows < 1) return;
  const int64_t n0 = blockIdx.x % tiles_n * kFp8TileN;
  auto* stored = reinterpret_cast<Bf16*>(emulator::dynamic_shared()) + warp * 16 * kStorePitch;
  fp8_multiply_rows(args.product, tile, n0, warp * 16, lane, stored, [&](int t, float(&products)[64]) {
    for (int i = 0; i < 64; ++i) {
      const int64_t row = warp * 16 + row_of_element(lane, i), n = n0 + column_of_element(lane, i);
      products[i] = std::nanf("");  // of others' rows and columns, which nobody may see
      if (row >= tile.rows || n >= p.N) continue;
      products[i] = 0;
      for (int64_t k = t * kFp8Block; k < std::min<int64_t>(p.K, (t + 1) * kFp8Block); ++k) {
        products[i] += fp8::number_of(args.a[(tile.first + row) * p.K + k]) *
                       fp8::number_of(args.b[(tile.group * p.N + n) * p.K + k]);
      }
    }
  });
}

struct Bytes {
  std::vector<uint8_t> q, scales;
};
device::TensorView view(std::vector<float>& x, std::vector<int64_t> shape) {
  device::TensorView v{.data = x.data(), .dtype = Dtype::f32, .rank = static_cast<int8_t>(shape.size())};
  std::copy(shape.begin(), shape.end(), v.dims.begin());
  return v;
}
int64_t blocks(int64_t count) { return fp8::blocks_of(count); }
std::vector<float> drawn(int64_t count, uint64_t seed) {
  std::vector<float> x(static_cast<size_t>(count));
  const RandomKey key(seed);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(key.normal(i) * std::exp2(key.normal(i + 7)));
  return x;
}
Bytes rows_of(std::vector<float> x, int64_t M, int64_t K) {
  Bytes made{std::vector<uint8_t>(x.size()), std::vector<uint8_t>(static_cast<size_t>(M * blocks(K)))};
  fp8_round_rows(view(x, {M, K}), made.q.data(), made.scales.data(), nullptr);
  return made;
}
Bytes weight_of(std::vector<float>& w, int64_t E, int64_t N, int64_t K, bool turned) {
  Bytes made{std::vector<uint8_t>(w.size()), std::vector<uint8_t>(static_cast<size_t>(E * blocks(N) * blocks(K)))};
  fp8_weight_bytes(view(w, {E, N, K}), turned, made.q.data(), made.scales.data(), nullptr);
  return made;
}

TEST(Fp8Tile, bytes_of_a_weight_and_of_what_is_turned) {
  constexpr int64_t E = 2, N = 200, K = 300;
  std::vector<float> w = drawn(E * N * K, 5);
  const Bytes straight = weight_of(w, E, N, K, false), turned = weight_of(w, E, N, K, true);
  for (int64_t e = 0; e < E; ++e) {
    for (int64_t n0 = 0; n0 < N; n0 += 128) {
      for (int64_t k0 = 0; k0 < K; k0 += 128) {
        float most = 0;
        for (int64_t n = n0; n < std::min(N, n0 + 128); ++n)
          for (int64_t k = k0; k < std::min(K, k0 + 128); ++k)
            most = fp8::larger(most, w[static_cast<size_t>((e * N + n) * K + k)]);
        const uint8_t scale = fp8::scale_for(most);
        ASSERT_EQ(straight.scales[static_cast<size_t>((e * blocks(N) + n0 / 128) * blocks(K) + k0 / 128)], scale);
        ASSERT_EQ(turned.scales[static_cast<size_t>((e * blocks(K) + k0 / 128) * blocks(N) + n0 / 128)], scale);
        for (int64_t n = n0; n < std::min(N, n0 + 128); ++n) {
          for (int64_t k = k0; k < std::min(K, k0 + 128); ++k) {
            const auto at = static_cast<size_t>((e * N + n) * K + k);
            const uint8_t byte = fp8::byte_of(fp8::rounded(w[at] * fp8::inverse_of(scale)));
            ASSERT_EQ(straight.q[at], byte) << e << " " << n << " " << k;
            ASSERT_EQ(turned.q[static_cast<size_t>((e * K + k) * N + n)], byte) << e << " " << n << " " << k;
          }
        }
      }
    }
  }
}

// Rows of groups that end anywhere, one of none; N and K that are no whole blocks; both types of results.
TEST(Fp8Tile, sums_of_blocks_take_their_scales) {
  constexpr int64_t E = 4, N = 200, K = 304;
  for (const std::vector<int32_t>& offsets : {std::vector<int32_t>{}, {0, 3, 3, 140, 301}}) {
    const int64_t groups = offsets.empty() ? 1 : E, M = offsets.empty() ? 150 : offsets.back();
    std::vector<float> w = drawn(groups * N * K, 2);
    const Bytes a = rows_of(drawn(M * K, 1), M, K), b = weight_of(w, groups, N, K, false);
    for (const bool wide : {true, false}) {
      std::vector<float> c(static_cast<size_t>(M * N), std::nanf(""));
      std::vector<bf16> narrow(static_cast<size_t>(M * N));
      TileArgs args{};
      args.a = a.q.data();
      args.b = b.q.data();
      args.product.a_scales = a.scales.data();
      args.product.b_scales = b.scales.data();
      args.product.blocks = blocks(K);
      ProductArgs& p = args.product.product;
      p.c = wide ? static_cast<void*>(c.data()) : narrow.data();
      p.offsets = offsets.empty() ? nullptr : offsets.data();
      p.M = M;
      p.N = p.c_pitch = N;
      p.K = K;
      p.groups = groups;
      p.wide = wide;
      const int64_t count = blocks_for(N, kFp8TileN) * (blocks_for(M, kFp8TileM) + (offsets.empty() ? 0 : groups));
      launch(tiles, {.blocks_x = count, .threads = 256, .shared_bytes = 8 * 16 * kStorePitch * 2}, args, nullptr);
      for (int64_t row = 0; row < M; ++row) {
        int64_t group = 0;
        while (!offsets.empty() && offsets[static_cast<size_t>(group + 1)] <= row) ++group;
        for (int64_t n = 0; n < N; ++n) {
          double sum = 0, size = 0;
          for (int64_t k = 0; k < K; ++k) {
            const double term =
                double{fp8::number_of(a.q[static_cast<size_t>(row * K + k)])} *
                fp8::scale_of(a.scales[static_cast<size_t>(row * blocks(K) + k / 128)]) *
                fp8::number_of(b.q[static_cast<size_t>((group * N + n) * K + k)]) *
                fp8::scale_of(b.scales[static_cast<size_t>((group * blocks(N) + n / 128) * blocks(K) + k / 128)]);
            sum += term;
            size += std::abs(term);
          }
          const auto at = static_cast<size_t>(row * N + n);
          const double found = wide ? c[at] : static_cast<float>(narrow[at]);
          ASSERT_NEAR(found, sum, size * (wide ? 1e-6 : 0) + std::abs(sum) * (wide ? 0 : 0x1p-8) + size * 1e-6)
              << row << " " << n;
        }
      }
    }
  }
}

// What a product of two scales would not hold: rows and a weight whose numbers are large, but sum up to nothing.
TEST(Fp8Tile, scales_too_large_together_leave_zeros) {
  constexpr int64_t N = 128, K = 128;
  std::vector<float> x(K, 0), w(N * K, 0);
  x[0] = 3e38f;
  for (int64_t n = 0; n < N; ++n) w[static_cast<size_t>(n * K + 1)] = 3e38f;
  const Bytes a = rows_of(x, 1, K), b = weight_of(w, 1, N, K, false);
  std::vector<float> c(N, 1);
  TileArgs args{};
  args.a = a.q.data();
  args.b = b.q.data();
  args.product.a_scales = a.scales.data();
  args.product.b_scales = b.scales.data();
  args.product.blocks = 1;
  args.product.product.c = c.data();
  args.product.product.M = args.product.product.groups = 1;
  args.product.product.N = args.product.product.c_pitch = N;
  args.product.product.K = K;
  args.product.product.wide = true;
  launch(tiles, {.blocks_x = 1, .threads = 256, .shared_bytes = 8 * 16 * kStorePitch * 2}, args, nullptr);
  for (const float found : c) EXPECT_EQ(found, 0);
}

}  // namespace
}  // namespace heddle::kernels::cuda

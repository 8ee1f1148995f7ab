// Rows that kernels move in 16-byte words, and blocks of rows: wider and longer than the cases of all ops have
// them. In the emulator, held to the reference, to the bit where nothing is summed.
#include <gtest/gtest.h>

#include <array>

#include "heddle/kernels/cuda/launch.h"
#include "heddle/kernels/cuda/loss_kernels.h"
#include "heddle/kernels/cuda/products/sum_operands.h"
#include "heddle/kernels/cuda/products/warp_tiles.h"
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

void like_reference_wide_rows(const OpCase& op, double tolerance) {
  SCOPED_TRACE(op.name);
  const GradientResult expected = run_with_gradient(op, kernels::reference_kernels(), 2);
  const GradientResult found = run_with_gradient(op, kernels::cuda_kernels(), 2);
  for (size_t i = 0; i < expected.out.size(); ++i) {
    EXPECT_TRUE(tolerance == 0 ? same(expected.out[i], found.out[i])
                               : close(expected.out[i], found.out[i], tolerance))
        << "output " << i;
  }
  for (size_t i = 0; i < expected.d_in.size(); ++i) {
    EXPECT_TRUE(close(expected.d_in[i], found.d_in[i], std::max(tolerance, 2e-5))) << "gradient " << i;
  }
}

TEST(WideRows, Rope) {
  for (const int64_t interleaved : {0, 1}) {
    for (const int64_t inverse : {0, 1}) {
      for (const auto& [d, first, r] :
           {std::tuple{32, 0, 32}, {48, 16, 16}, {24, 8, 8}, {40, 0, 16}, {88, 24, 64}}) {
        like_reference_wide_rows(OpCase{fmt::format("rope {} {} of {}, {} {}", first, r, d, interleaved, inverse),
                                        "rope",
                                        {activation(random_tensor(Dtype::f32, {2 * 5, 3 * d}, 21)),
                                         metadata(rotation_table(Dtype::f32, 5, r))},
                                        {{"heads", 3},
                                         {"head_dim", d},
                                         {"rope_dim", r},
                                         {"sequence", 5},
                                         {"interleaved", interleaved},
                                         {"first", first},
                                         {"inverse", inverse}},
                                        {}},
                                 0);
      }
    }
    like_reference_wide_rows(OpCase{"mla_rope",
                                    "mla_rope",
                                    {activation(random_tensor(Dtype::f32, {2 * 3, 12 * 40}, 22)),
                                     activation(random_tensor(Dtype::f32, {2 * 3, 12 * 32}, 23)),
                                     activation(random_tensor(Dtype::f32, {2 * 3, 16}, 24)),
                                     metadata(rotation_table(Dtype::f32, 3, 16))},
                                    {{"heads", 12},
                                     {"nope", 24},
                                     {"rope", 16},
                                     {"value_dim", 8},
                                     {"sequence", 3},
                                     {"interleaved", interleaved}},
                                    {}},
                             0);
  }
}

TEST(WideRows, GatheredRows) {
  for (const int64_t H : {8, 24, 27, 256, 1000}) {
    const int64_t V = 300;
    for (const int64_t T : {1, 9, 200}) {
      like_reference_wide_rows(
          OpCase{fmt::format("embedding {} {}", T, H),
                 "embedding",
                 {Operand{random_labels(T, V, 65), Role::input}, weight(random_tensor(Dtype::f32, {V, H}, 64))},
                 {},
                 {}},
          0);
    }
  }
}

// Blocks of 8 rows, gradients of three blocks at once, a last block of 3 rows.
TEST(WideRows, HeadInBlocks) {
  kernels::cuda::HeadRoom& room = kernels::cuda::head_room();
  const kernels::cuda::HeadRoom usual = room;
  for (const int64_t T : {51, 48, 8, 5}) {
    for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
      room = {.logit_bytes = 8 * 40 * 4, .gradient_bytes = 3 * 8 * 40 * 2, .least_rows = 8};
      like_reference_wide_rows(
          OpCase{fmt::format("head {} {}", T, name_of(X)),
                 "linear_cross_entropy",
                 {activation(random_tensor(X, {T, 16}, 63)), weight(random_tensor(X, {40, 16}, 64)),
                  Operand{random_labels(T, 40, 65), Role::input},
                  Operand{random_tensor(wide(X), {3}, 48), Role::input}},
                 {{"scale_index", 1}},
                 {}},
          X == Dtype::bf16 ? 0x1p-6 : 2e-5);
      room = usual;
    }
  }
}

struct FindArgs {
  const int32_t* offsets;
  int64_t groups;
  int32_t* found;  // [blocks, 32, 2]
};
HEDDLE_KERNEL void find_tiles(FindArgs args) {
  const kernels::cuda::RowTile tile = kernels::cuda::tile_of_warp(args.offsets, args.groups, 128, blockIdx.x);
  int32_t* const to = args.found + (static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x) * 2;
  to[0] = tile.group;
  to[1] = tile.tile;
}

// Experts without rows, with one, with whole tiles, and more of them than a warp has lanes.
TEST(RowTiles, OfAWarp) {
  for (const size_t groups : {1, 5, 32, 33, 100}) {
    std::vector<int32_t> offsets{0};
    std::vector<std::pair<int32_t, int32_t>> expected;
    for (size_t e = 0; e < groups; ++e) {
      const int32_t rows = std::array{0, 1, 128, 129, 0, 0, 640, 7}[RandomKey(groups).bits(e) % 8];
      offsets.push_back(offsets.back() + rows);
      for (int32_t t = 0; t < (rows + 127) / 128; ++t) expected.emplace_back(static_cast<int32_t>(e), t);
    }
    while (expected.size() < groups + 8) expected.emplace_back(-1, 0);
    std::vector<int32_t> found(expected.size() * 64);
    kernels::cuda::launch(find_tiles, {.blocks_x = std::ssize(expected), .threads = 32},
                          {offsets.data(), static_cast<int64_t>(groups), found.data()}, nullptr);
    for (size_t i = 0; i < found.size() / 2; ++i) {
      EXPECT_EQ(std::pair(found[i * 2], found[i * 2 + 1]), expected[i / 32])
          << groups << " groups, tile " << i / 32;
    }
  }
}

// What a library's grouped kernel is told of experts without rows, with one, with most of them, and of more experts
// than a block has threads; multiplied here by what stands in the arrays alone.
TEST(SumOperands, OfEveryExpert) {
  namespace cuda = kernels::cuda;
  for (const size_t groups : {1, 7, 130}) {
    constexpr int64_t N = 8, K = 16;
    std::vector<int32_t> offsets{0};
    for (size_t e = 0; e < groups; ++e)
      offsets.push_back(offsets.back() + std::array{0, 1, 0, 3, 40}[RandomKey(groups).bits(e) % 5]);
    const auto rows = static_cast<size_t>(offsets.back());
    const auto numbers = [](size_t count, uint64_t seed) {
      std::vector<bf16> of;
      for (size_t i = 0; i < count; ++i) of.emplace_back(static_cast<float>(RandomKey(seed).bits(i) % 7) - 3);
      return of;
    };
    const std::vector<bf16> dy = numbers(rows * N, 1), x = numbers(rows * K, 2);
    std::vector<float> acc(groups * N * K, 5);
    std::vector<int32_t> sizes(groups * 3, -1);
    std::vector<const void*> at_dy(groups), at_x(groups);
    std::vector<float*> at_acc(groups);
    std::vector<int64_t> dy_pitch(groups), x_pitch(groups), acc_pitch(groups);
    const auto E = static_cast<int64_t>(groups);
    cuda::launch(cuda::sum_operands, {.blocks_x = cuda::blocks_for(E, 128), .threads = 128},
                 {offsets.data(),
                  dy.data(),
                  x.data(),
                  acc.data(),
                  E,
                  N,
                  K,
                  {sizes.data(), at_dy.data(), at_x.data(), at_acc.data(), dy_pitch.data(), x_pitch.data(),
                   acc_pitch.data()}},
                 nullptr);
    cuda::launch(cuda::clear_idle, {.blocks_x = 3, .blocks_y = E}, {offsets.data(), acc.data(), N * K}, nullptr);
    for (size_t e = 0; e < groups; ++e) {
      const bool idle = offsets[e] == offsets[e + 1];
      EXPECT_EQ(sizes[e * 3], idle ? 0 : N);
      EXPECT_EQ(sizes[e * 3 + 1], idle ? 0 : K);
      for (int64_t n = 0; n < sizes[e * 3]; ++n) {
        for (int64_t k = 0; k < sizes[e * 3 + 1]; ++k) {
          float sum = 0;
          for (int64_t r = 0; r < sizes[e * 3 + 2]; ++r)
            sum += static_cast<float>(static_cast<const bf16*>(at_dy[e])[r * dy_pitch[e] + n]) *
                   static_cast<float>(static_cast<const bf16*>(at_x[e])[r * x_pitch[e] + k]);
          at_acc[e][n * acc_pitch[e] + k] = sum;
        }
      }
      for (int64_t n = 0; n < N; ++n) {
        for (int64_t k = 0; k < K; ++k) {
          float wanted = 0;  // whole numbers
          for (auto r = static_cast<size_t>(offsets[e]); r < static_cast<size_t>(offsets[e + 1]); ++r)
            wanted += static_cast<float>(dy[r * N + static_cast<size_t>(n)]) *
                      static_cast<float>(x[r * K + static_cast<size_t>(k)]);
          EXPECT_EQ(acc[e * N * K + static_cast<size_t>(n * K + k)], wanted) << groups << " groups, " << e;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::op_runner

// The emulator itself: blocks, barriers, shuffles, votes; and that a mistake in their use shows.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "heddle/kernels/cuda/attention/attention.h"
#include "heddle/kernels/cuda/launch.h"
#include "heddle/kernels/cuda/products/tile.h"

namespace heddle::kernels::cuda {
namespace {

struct Args {
  int* to;
  bool waits;
};

/// Each thread takes what another has put into shared memory.
HEDDLE_KERNEL void reverse(Args args) {
  HEDDLE_SHARED(int, board, 256);
  const unsigned i = threadIdx.x, n = blockDim.x;
  board[i] = static_cast<int>(blockIdx.x * 1000 + i);
  if (args.waits) __syncthreads();
  args.to[blockIdx.x * n + i] = board[n - 1 - i];
}

TEST(Emulator, threads_meet_at_barriers) {
  std::vector<int> found(3 * 200);
  launch(reverse, {.blocks_x = 3, .threads = 200}, {found.data(), true}, nullptr);
  for (int b = 0; b < 3; ++b) {
    for (int i = 0; i < 200; ++i) EXPECT_EQ(found[static_cast<size_t>(b * 200 + i)], b * 1000 + 199 - i);
  }
}

TEST(Emulator, a_missing_barrier_shows) {
  std::vector<int> found(2 * 200);
  launch(reverse, {.blocks_x = 2, .threads = 200}, {found.data(), false}, nullptr);
  // Some thread has read what was not yet written, which is poison.
  EXPECT_NE(std::count(found.begin(), found.end(), -1), 0);
}

TEST(Emulator, threads_that_wait_for_others_in_vain_are_told) {
  const auto stuck = +[](Args) {
    if (threadIdx.x == 0) __syncwarp();
    if (threadIdx.x == 1) __syncthreads();
  };
  EXPECT_THROW(launch(stuck, {.threads = 32}, {nullptr, false}, nullptr), std::logic_error);
}

HEDDLE_KERNEL void exchange(Args args) {
  const int lane = static_cast<int>(threadIdx.x);
  args.to[lane] = __shfl_xor_sync(kFullWarp, 10 * lane, 3);
  args.to[kWarp + lane] = __shfl_sync(kFullWarp, 10 * lane, kWarp - 1 - lane);
  const Lanes yes = vote(lane % 3 == 0);
  args.to[2 * kWarp + lane] = count_of(yes) * 100 + count_of(yes & lanes_below(lane));
  args.to[3 * kWarp + lane] = warp_sum(lane);
}

TEST(Emulator, lanes_exchange_values) {
  std::vector<int> found(4 * kWarp);
  launch(exchange, {.threads = kWarp}, {found.data(), false}, nullptr);
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto at = static_cast<size_t>(lane);
    EXPECT_EQ(found[at], 10 * (lane ^ 3));
    EXPECT_EQ(found[kWarp + at], 10 * (kWarp - 1 - lane));
    EXPECT_EQ(found[2 * kWarp + at], (kWarp + 2) / 3 * 100 + (lane + 2) / 3);
    EXPECT_EQ(found[3 * kWarp + at], kWarp * (kWarp - 1) / 2);
  }
}

HEDDLE_KERNEL void count_threads(Args args) {
  HEDDLE_SHARED(unsigned, votes, 256 / kWarp);
  const int thread = static_cast<int>(threadIdx.x);
  int all = 0;
  const int before = count_before(thread % 5 < 2, votes, all);
  args.to[thread] = before * 1000 + all;
}

TEST(Emulator, votes_of_a_block_are_counted) {
  std::vector<int> found(256);
  launch(count_threads, {.threads = 256}, {found.data(), false}, nullptr);
  for (int thread = 0, before = 0; thread < 256; before += thread++ % 5 < 2 ? 1 : 0) {
    EXPECT_EQ(found[static_cast<size_t>(thread)], before * 1000 + 103) << thread;
  }
}

/// Copies 16 bytes to shared memory and reads them, before or after the wait.
HEDDLE_KERNEL void copied(Args args) {
  HEDDLE_SHARED(Quad, tile, 2);
  const int lane = static_cast<int>(threadIdx.x);
  copy_async(tile + lane, args.to + 4 + 4 * lane, 16);
  end_copies();
  if (args.waits) wait_for_copies<0>();
  __syncthreads();
  if (lane == 0) args.to[0] = static_cast<int>(tile[1].word[3]);
}

TEST(Emulator, a_copy_comes_at_the_wait_that_covers_it) {
  alignas(16) int numbers[16] = {0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
  launch(copied, {.threads = 2}, {numbers, true}, nullptr);
  EXPECT_EQ(numbers[0], 8);
  launch(copied, {.threads = 2}, {numbers, false}, nullptr);
  EXPECT_EQ(numbers[0], -1);
}

/// The message of what a launch throws.
template <class Kernel>
std::string refusal(Kernel kernel, const LaunchShape& shape, Args args = {}) {
  try {
    launch(+kernel, shape, args, nullptr);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Emulator, accesses_of_16_bytes_are_aligned) {
  const auto load = [](Args args) {
    float v[kPack];
    load_pack(reinterpret_cast<const float*>(args.to), kPack, true, v);
  };
  alignas(16) int numbers[16] = {};
  EXPECT_EQ(refusal(load, {.threads = 32}, {numbers, false}), "");
  EXPECT_NE(refusal(load, {.threads = 32}, {numbers + 1, false}).find("not aligned"), std::string::npos);
}

TEST(Emulator, a_lane_that_is_not_there_has_no_value) {
  const auto beyond = [](Args args) { args.to[0] = __shfl_xor_sync(kFullWarp, 1, kWarp / 2); };
  const auto ended = [](Args args) {
    if (threadIdx.x == 3) return;
    __syncwarp();
    args.to[0] = __shfl_sync(kFullWarp, 1, 3);
  };
  int number = 0;
  EXPECT_EQ(refusal(beyond, {.threads = kWarp}, {&number, false}), "");
  EXPECT_NE(refusal(beyond, {.threads = kWarp / 2}, {&number, false}).find("not there"), std::string::npos);
  EXPECT_NE(refusal(ended, {.threads = kWarp}, {&number, false}).find("lane 3"), std::string::npos);
}

TEST(Emulator, all_meet_at_one_place) {
  const auto apart = [](Args args) {
    if (threadIdx.x % 2 == 0) {
      args.to[0] = __shfl_sync(kFullWarp, 1, 0);
    } else {
      args.to[1] = __shfl_sync(kFullWarp, 2, 0);
    }
  };
  const auto barriers = [](Args) {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  };
  int numbers[2];
  EXPECT_NE(refusal(apart, {.threads = 32}, {numbers, false}).find("different places"), std::string::npos);
  EXPECT_NE(refusal(barriers, {.threads = 64}).find("different places"), std::string::npos);
}

TEST(Emulator, a_launch_is_what_a_device_takes) {
  const auto nothing = [](Args) {};
  const auto much = [](Args) {
    HEDDLE_SHARED(char, board, (48 << 10) + 1);
    board[0] = 0;
  };
  const auto some = [](Args) {
    HEDDLE_SHARED(char, board, 1 << 10);
    board[0] = 0;
  };
  EXPECT_EQ(refusal(nothing, {.threads = 1024}), "");
  EXPECT_NE(refusal(nothing, {.threads = 1025}), "");
  EXPECT_NE(refusal(nothing, {.blocks_y = 1 << 16, .threads = 1}), "");
  EXPECT_NE(refusal(nothing, {.blocks_z = 1 << 16, .threads = 1}), "");
  EXPECT_NE(refusal(much, {.threads = 1}), "");
  EXPECT_EQ(refusal(some, {.threads = 1, .shared_bytes = 226 << 10}), "");
  EXPECT_NE(refusal(some, {.threads = 1, .shared_bytes = 227 << 10}), "");
}

TEST(Emulator, some_blocks_of_a_grid) {
  std::vector<int> found(1000);
  const auto mark = +[](Args args) { ++args.to[blockIdx.y * gridDim.x + blockIdx.x]; };
  {
    const emulator::SomeBlocks some(10, 3);
    launch(mark, {.blocks_x = 100, .blocks_y = 10, .threads = 1}, {found.data(), false}, nullptr);
  }
  EXPECT_EQ(std::accumulate(found.begin(), found.end(), 0), 10);
  EXPECT_GE(found.front(), 1);
  EXPECT_GE(found.back(), 1);
}

struct FragmentArgs {
  const float *a, *b;
  float* c;
};

enum class Form { own, plain };

/// c[16, 16] = a[16, 16]·b[16, 16]ᵀ of small whole numbers, with a by rows or by k, for each 32 lanes.
template <bool a_by_k, Form form>
HEDDLE_KERNEL void fragments(FragmentArgs args) {
  HEDDLE_SHARED(Bf16, a_tiles, 2 * 16 * 24);
  HEDDLE_SHARED(Bf16, b_tiles, 2 * 16 * 24);
  const int lane = tile_lane(), tile = static_cast<int>(threadIdx.x) / kTileLanes;
  Bf16 *a = a_tiles + tile * 16 * 24, *b = b_tiles + tile * 16 * 24;
  for (int i = lane; i < 256; i += kTileLanes) {
    a[i / 16 * 24 + i % 16] = rounded<Bf16>(args.a[tile * 256 + (a_by_k ? i % 16 * 16 + i / 16 : i)]);
    b[i / 16 * 24 + i % 16] = rounded<Bf16>(args.b[tile * 256 + i]);
  }
  __syncwarp();
  float c[1][2][4] = {};
  if constexpr (form == Form::own) {
    multiply_tile<a_by_k, false>(c, a, 24, b, 24, 16);
  } else {
    uint32_t rows[4], columns[4];
    const int row = lane % 8, matrix = lane / 8;
    if constexpr (a_by_k) {
      plain_load_matrices<true>(rows, a + (matrix / 2 * 8 + row) * 24 + matrix % 2 * 8);
    } else {
      plain_load_matrices<false>(rows, a + (matrix % 2 * 8 + row) * 24 + matrix / 2 * 8);
    }
    plain_load_matrices<false>(columns, b + (matrix / 2 * 8 + row) * 24 + matrix % 2 * 8);
    plain_multiply_fragment(c[0][0], rows, columns[0], columns[1]);
    plain_multiply_fragment(c[0][1], rows, columns[2], columns[3]);
  }
  for (int n = 0; n < 2; ++n) {
    for (int i = 0; i < 4; ++i) {
      args.c[tile * 256 + (lane / 4 + i / 2 * 8) * 16 + n * 8 + lane % 4 * 2 + i % 2] = c[0][n][i];
    }
  }
}

// Two tiles: by two warps, or by the halves of one.
TEST(Emulator, fragments_multiply) {
  std::vector<float> a(512), b(512);
  for (int i = 0; i < 512; ++i) {
    a[static_cast<size_t>(i)] = static_cast<float>(i * 7 % 13 - 6);
    b[static_cast<size_t>(i)] = static_cast<float>(i * 5 % 11 - 5);
  }
  for (const auto kernel : {fragments<false, Form::own>, fragments<true, Form::own>, fragments<false, Form::plain>,
                            fragments<true, Form::plain>}) {
    std::vector<float> c(512);
    launch(kernel, {.threads = 2 * kTileLanes}, {a.data(), b.data(), c.data()}, nullptr);
    for (size_t i = 0; i < 32; ++i) {
      for (size_t j = 0; j < 16; ++j) {
        float sum = 0;
        for (size_t k = 0; k < 16; ++k) sum += a[i * 16 + k] * b[i / 16 * 256 + j * 16 + k];
        EXPECT_EQ(c[i * 16 + j], sum) << i << ", " << j;
      }
    }
  }
}

// Own attention asks for room in a block before anything runs: AMD's have 64 KiB.
TEST(Emulator, attention_is_refused_where_a_block_is_too_small) {
  using device::Vendor;
  for (const Vendor vendor : {Vendor::nvidia, Vendor::metax}) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::f32}) EXPECT_TRUE(attention_fits_block(192, 128, dtype, vendor));
  }
  EXPECT_TRUE(attention_fits_block(128, 128, Dtype::bf16, Vendor::amd));
  EXPECT_TRUE(attention_fits_block(32, 32, Dtype::f32, Vendor::amd));
  EXPECT_FALSE(attention_fits_block(64, 64, Dtype::f32, Vendor::amd));
  EXPECT_EQ(
      attention_fits_block(192, 128, Dtype::bf16, Vendor::amd).reason,
      "with heads of 192 and values of 128 in bf16 a block takes 76 KiB of shared memory, those of AMD have 64");
}

}  // namespace
}  // namespace heddle::kernels::cuda

// What a device refuses and an emulator of kernels does not see: launches with more shared memory than was asked
// for, copies across pages that were locked apart, an environment that the driver has already read.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "heddle/device/cuda/cuda_arena.h"
#include "heddle/device/device.h"
#include "heddle/kernels/cuda/attention/attention_kernels.h"
#include "heddle/kernels/cuda/experts/host_work.h"
#include "heddle/kernels/cuda/launch.h"
#include "tests/gpu/strict_runtime.h"

namespace heddle {
namespace {

struct Nothing {
  int x;
};
void kernel(Nothing) {}
void other(Nothing) {}

// The demo's attention in f32, whose gradient takes exactly 48 KiB of dynamic memory beside 512 bytes of static.
TEST(Launches, StaticAndDynamicSharedMemoryCountTogether) {
  strict::declare_kernel(reinterpret_cast<const void*>(kernel), 512);
  strict::declare_kernel(reinterpret_cast<const void*>(other), 0);
  const int64_t demo = kernels::cuda::attention_grad_shared_bytes(48, 32, 4);
  EXPECT_EQ(demo, 48 << 10);
  for (const int64_t bytes : {int64_t{0}, demo - 512, demo, demo - 512, int64_t{200} << 10, demo}) {
    EXPECT_NO_THROW(kernels::cuda::launch(kernel, {.shared_bytes = bytes}, {1}, nullptr)) << bytes;
    EXPECT_NO_THROW(kernels::cuda::launch(other, {.shared_bytes = bytes}, {1}, nullptr)) << bytes;
  }
  EXPECT_THROW(kernels::cuda::launch(kernel, {.shared_bytes = 227 << 10}, {1}, nullptr), SystemError);
  EXPECT_NO_THROW(kernels::cuda::launch(other, {.shared_bytes = 227 << 10}, {1}, nullptr));
}

TEST(Launches, UploadsGoRoundTheirRing) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, 0);
  std::vector<std::byte> from(11 << 20), to(from.size());
  for (int round = 0; round < 5; ++round) {
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 4099 + round);
    kernels::cuda::upload(to.data(), from.data(), std::ssize(from), stream);
    const std::vector<std::byte> sent = from;
    std::memset(from.data(), 0xee, from.size());  // as soon as it returns
    cudaStreamSynchronize(stream);
    EXPECT_EQ(to, sent) << round;
  }
  cudaStreamDestroy(stream);
}

// What the host works out reads what the stream had made by then, however far the caller is ahead, and what comes
// behind it reads what it wrote.
TEST(Launches, TheHostWorksInTheOrderOfAStream) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, 0);
  std::vector<int64_t> from(1000), to(from.size());
  constexpr int kRounds = 50;
  std::vector<std::vector<int64_t>> taken(kRounds, to);
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<int64_t> next(from.size(), round);
    const int64_t bytes = std::ssize(next) * 8;
    kernels::cuda::upload(from.data(), next.data(), bytes, stream);
    kernels::cuda::on_host({.from = from.data(),
                            .to = to.data(),
                            .from_bytes = bytes,
                            .to_bytes = 1000 / (1 + round % 3) * 8,
                            .run =
                                [round](const std::byte* read, std::byte* write) {
                                  std::this_thread::sleep_for(std::chrono::milliseconds(round % 4));
                                  const int64_t count = 1000 / (1 + round % 3);
                                  for (int64_t i = 0; i < count; ++i)
                                    reinterpret_cast<int64_t*>(write)[i] =
                                        reinterpret_cast<const int64_t*>(read)[i] * 3 + i;
                                }},
                           stream);
    kernels::cuda::copy_bytes(taken[static_cast<size_t>(round)].data(), to.data(), bytes, stream);
  }
  cudaStreamSynchronize(stream);
  std::vector<int64_t> expected(to.size(), 0);
  for (int round = 0; round < kRounds; ++round) {
    for (int64_t i = 0; i < 1000 / (1 + round % 3); ++i) expected[static_cast<size_t>(i)] = round * 3 + i;
    EXPECT_EQ(taken[static_cast<size_t>(round)], expected) << round;
  }
  cudaStreamDestroy(stream);
}

TEST(Arenas, CopiesMayLieAcrossSeamsOfLockedPages) {
  device::PinnedArena host(int64_t{256} << 20);
  host.reach(int64_t{200} << 20);
  std::vector<std::byte> there(size_t{150} << 20, std::byte{7});
  std::byte* at = host.base() + (int64_t{60} << 20);  // 4 MiB before a seam, and over three of them
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, 0);
  EXPECT_NO_THROW(kernels::cuda::copy_bytes(at, there.data(), std::ssize(there), stream));
  std::vector<std::byte> back(there.size());
  EXPECT_NO_THROW(kernels::cuda::copy_bytes(back.data(), at, std::ssize(back), stream));
  // From one place of the arena to another, with seams at other offsets of either.
  EXPECT_NO_THROW(kernels::cuda::copy_bytes(host.base(), at, int64_t{50} << 20, stream));
  cudaStreamSynchronize(stream);
  EXPECT_EQ(back, there);
  EXPECT_EQ(std::memcmp(host.base(), there.data(), size_t{50} << 20), 0);
  const int before = strict::seen().copies;
  kernels::cuda::copy_bytes(back.data(), there.data(), std::ssize(back), stream);
  EXPECT_EQ(strict::seen().copies, before + 1) << "memory without seams is copied at once";
  cudaStreamDestroy(stream);
}

TEST(Arenas, MemoryOfTheDeviceCanBeShared) {
  const auto device = device::cuda_device({.on_host = 2});
  EXPECT_EQ(strict::seen().device, 2);
  const auto arena = device->arena(int64_t{256} << 20);
  arena->reach(1);
  ASSERT_FALSE(strict::seen().allocations.empty());
  const CUmemAllocationProp& prop = strict::seen().allocations.back();
  EXPECT_EQ(prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(prop.allocFlags.gpuDirectRDMACapable, 1);
}

TEST(Devices, TheDriverIsToldBeforeItStarts) {
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  unsetenv("CUDA_MODULE_LOADING");
  strict::seen().device = -1;
  const auto alone = device::cuda_device({});
  EXPECT_EQ(strict::seen().max_connections, "32");
  EXPECT_EQ(strict::seen().module_loading, "");
  EXPECT_GE(strict::seen().stack_bytes, 1344u);  // what the merge tree keeps: docs/howto/gpu.md
  strict::seen().device = -1;
  const auto one_of_two = device::cuda_device({.on_host = 1, .ranks = 2});
  EXPECT_EQ(strict::seen().module_loading, "EAGER");
  EXPECT_LT(one_of_two->memory_bytes(), alone->memory_bytes());
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
  strict::seen().device = -1;
  device::cuda_device({});
  EXPECT_EQ(strict::seen().max_connections, "8") << "what the user has set stands";
}

}  // namespace
}  // namespace heddle

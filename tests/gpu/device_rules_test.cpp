// What a device refuses and an emulator of kernels does not see: launches with more shared memory than was asked
// for, copies across pages that were locked apart, an environment that the driver has already read.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "heddle/device/cuda/cuda_arena.h"
#include "heddle/device/cuda/cuda_check.h"
#include "heddle/device/cuda/library_release.h"
#include "heddle/device/device.h"
#include "heddle/device/device_facts.h"
#include "heddle/kernels/cuda/attention/attention_kernels.h"
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/cutlass/grouped_sums.h"
#include "heddle/kernels/cuda/experts/host_work.h"
#include "heddle/kernels/cuda/launch.h"
#include "heddle/kernels/cuda/products/grouped.h"
#include "heddle/kernels/cuda/products/sum_operands.h"
#include "heddle/kernels/cuda/tile_blocks.h"
#include "heddle/ops/ops.h"
#include "tests/gpu/strict_runtime.h"

// In the place of the device's code.
namespace heddle::kernels::cuda {
void sum_operands(SumOperandsArgs) {}
void clear_idle(ClearIdleArgs) {}
void grouped_sums(const TensorView&, const TensorView&, const int32_t*, int64_t, float*, bool, void*) {}
int blocks_of_cutlass = 0;
const char* grouped_sums_by_cutlass(const SumArrays&, int64_t, bool, int, int blocks, void*, int64_t, void*) {
  blocks_of_cutlass = blocks;
  return cudaGetLastError() == cudaSuccess ? nullptr : "a launch that was refused";
}
}  // namespace heddle::kernels::cuda

namespace heddle {
namespace {

/// A stream of the test's.
struct Stream {
  Stream() { cudaStreamCreateWithFlags(&stream, 0); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t stream = nullptr;
};

/// Work on a stream that ends when it is told, and an event behind it.
class Held {
 public:
  explicit Held(cudaStream_t stream) {
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaLaunchHostFunc(
        stream, [](void* held) { static_cast<Held*>(held)->wait(); }, this);
    cudaEventRecord(event, stream);
  }
  ~Held() {
    release();
    cudaEventSynchronize(event);
    cudaEventDestroy(event);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  void release() { released_ = true; }
  cudaEvent_t event = nullptr;

 private:
  void wait() const {
    while (!released_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::atomic<bool> released_ = false;
};

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

TEST(Events, OneThatIsNotReachedLeavesNoError) {
  const Stream one;
  Held held(one.stream);
  EXPECT_FALSE(device::reached(held.event));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  held.release();
  cudaStreamSynchronize(one.stream);
  EXPECT_TRUE(device::reached(held.event));
  strict::seen().event_answers = cudaErrorIllegalAddress;
  EXPECT_THROW(static_cast<void>(device::reached(held.event)), SystemError) << "what has failed isn't reached";
  strict::seen().event_answers = cudaSuccess;
  cudaGetLastError();
}

// CUTLASS reads the last error behind its launch, whoever has left it.
TEST(Cutlass, IsLaunchedWhateverErrorStoodBefore) {
  const Stream one;
  const Held held(one.stream);
  strict::declare_kernel(reinterpret_cast<const void*>(kernels::cuda::sum_operands), 0);
  strict::declare_kernel(reinterpret_cast<const void*>(kernels::cuda::clear_idle), 0);
  ir::Op op;
  op.def = &ops::find("grouped_linear_wgrad");
  alignas(256) static std::byte numbers[4096];
  std::vector<std::byte> scratch(int64_t{3} << 20);
  const auto view = [&](Dtype dtype, std::array<int64_t, 4> dims, int8_t rank) {
    device::TensorView one{.data = numbers, .dtype = dtype, .rank = rank, .dims = dims};
    return one;
  };
  const device::TensorView in[] = {view(Dtype::bf16, {4, 8, 1, 1}, 2), view(Dtype::bf16, {4, 8, 1, 1}, 2),
                                   view(Dtype::i32, {3, 1, 1, 1}, 1)};
  const device::TensorView updates[] = {view(Dtype::f32, {2, 8, 8, 1}, 3)};
  device::KernelCall call;
  call.op = &op;
  call.in = in;
  call.updates = updates;
  call.scratch = scratch.data();
  call.stream = one.stream;
  EXPECT_EQ(cudaEventQuery(held.event), cudaErrorNotReady);
  EXPECT_NO_THROW(kernels::cuda::cutlass_entries().at(0).run(call));
  // Beside the messages of other ranks it has more blocks than the device can hold at once.
  for (const auto& [ranks, blocks] : {std::pair{1, 132}, {2, 4 * 132}}) {
    const auto device = device::cuda_device({.ranks = ranks});
    EXPECT_GT(device->memory_bytes(), 0);
    kernels::cuda::cutlass_entries().at(0).run(call);
    EXPECT_EQ(kernels::cuda::blocks_of_cutlass, blocks);
  }
}

/// When the last tile is done, in times of a tile, on processors of which some are held throughout.
int64_t time_of(int64_t tiles, int64_t blocks, int64_t processors) {
  std::vector<int64_t> free(static_cast<size_t>(processors), 0);
  for (int64_t b = 0; b < blocks; ++b) {
    auto first = std::min_element(free.begin(), free.end());
    *first += (tiles - b + blocks - 1) / blocks;
  }
  return *std::max_element(free.begin(), free.end());
}

// Messages hold 16 to 32 multiprocessors. The tiles go to the others without one of these being left to the end.
TEST(TileBlocks, ThoseThatBeginLateHaveLittleToDo) {
  using kernels::cuda::tile_blocks;
  constexpr int64_t kAll = 132;
  EXPECT_EQ(tile_blocks(5000, kAll, false), kAll);
  EXPECT_EQ(tile_blocks(100, kAll, true), 100);
  for (const int64_t held : {16, 24, 32}) {
    for (const int64_t tiles : {1584, 3000, 5280}) {
      const auto even = static_cast<double>(tiles) / static_cast<double>(kAll - held);
      const auto takes = [&](bool beside) {
        return static_cast<double>(time_of(tiles, tile_blocks(tiles, kAll, beside), kAll - held)) / even;
      };
      EXPECT_GT(takes(false), 1.45) << held << " " << tiles;
      EXPECT_LT(takes(true), 1.35) << held << " " << tiles;
    }
  }
}

// What is of one launch alone does not go into a graph, whatever the definition of its op says.
TEST(Launches, AGraphTakesNothingOfTheHosts) {
  const Stream one;
  int from = 1, to = 2;
  strict::seen().capturing = true;
  EXPECT_THROW(kernels::cuda::upload(&to, &from, 4, one.stream), SystemError);
  EXPECT_THROW(kernels::cuda::run_on_host([](void*) {}, nullptr, one.stream), SystemError);
  EXPECT_THROW(
      kernels::cuda::on_host({.from = &from, .to = &to, .from_bytes = 4, .to_bytes = 4, .run = {}}, one.stream),
      SystemError);
  strict::seen().capturing = false;
  EXPECT_NO_THROW(kernels::cuda::upload(&to, &from, 4, one.stream));
  cudaStreamSynchronize(one.stream);
  EXPECT_EQ(to, 1);
}

// A sum over gigabytes on one stream does not hold up what another stream needs of the host.
TEST(Launches, TheHostWorksForSeveralStreamsAtOnce) {
  for (const bool waits : {true, false}) {
    strict::seen().waits_for_values = waits;
    const Stream slow, quick;
    std::atomic<bool> begun = false, released = false, ended = false;
    std::atomic<int> order = 0;
    struct Slow {
      std::atomic<bool>&begun, &released, &ended;
    } with{begun, released, ended};
    kernels::cuda::run_on_host(
        [](void* data) {
          const auto& own = *static_cast<Slow*>(data);
          own.begun = true;
          while (!own.released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          own.ended = true;
        },
        &with, slow.stream);
    while (!begun) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    int from = 1, to = 0;
    kernels::cuda::copy_bytes(&to, &from, 4, slow.stream);
    kernels::cuda::run_on_host([](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &order, quick.stream);
    for (int i = 0; i < 100 && order == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(order, waits ? 1 : 0) << "the driver's own thread has one at a time";
    EXPECT_EQ(to, 0) << "what is put behind waits for the host";
    released = true;
    cudaStreamSynchronize(slow.stream);
    cudaStreamSynchronize(quick.stream);
    EXPECT_TRUE(ended);
    EXPECT_EQ(order, 1);
    EXPECT_EQ(to, 1);
  }
  strict::seen().waits_for_values = true;
}

// To lock pages may wait for the device, which may wait for another rank by then.
TEST(Launches, LockNoPagesOnceTheDeviceIsOpen) {
  const auto device = device::cuda_device({.ranks = 2});
  EXPECT_GT(device->memory_bytes(), 0);
  const Stream one, two;
  const int before = strict::seen().page_locks;
  int from = 1, to = 0, taken = 0;
  for (cudaStream_t stream : {one.stream, two.stream}) kernels::cuda::upload(&to, &from, 4, stream);
  kernels::cuda::on_host({.from = &from,
                          .to = &taken,
                          .from_bytes = 4,
                          .to_bytes = 4,
                          .run = [](const std::byte* read, std::byte* write) { std::memcpy(write, read, 4); }},
                         one.stream);
  cudaStreamSynchronize(one.stream);
  cudaStreamSynchronize(two.stream);
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(strict::seen().page_locks, before);
}

// Ranks that are threads: one that waits for its stream, which waits for another rank, doesn't keep that rank from
// uploading what it waits for.
TEST(Launches, AnUploadThatWaitsHoldsUpNoOtherStream) {
  const Stream first, second;
  std::vector<std::byte> from(size_t{20} << 20), to(from.size()), other(64);
  std::atomic<bool> uploaded = false;
  {
    Held held(first.stream);
    std::thread waits([&] { kernels::cuda::upload(to.data(), from.data(), std::ssize(from), first.stream); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it is full, and waits for what is held
    std::thread goes_on([&] {
      kernels::cuda::upload(other.data(), from.data(), std::ssize(other), second.stream);
      uploaded = true;
    });
    for (int i = 0; i < 400 && !uploaded; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(uploaded);
    held.release();
    waits.join();
    goes_on.join();
  }
  cudaStreamSynchronize(first.stream);
  cudaStreamSynchronize(second.stream);
}

TEST(Arenas, SayWhyThereIsNoMemory) {
  const auto device = device::cuda_device({});
  const auto arena = device->arena(int64_t{256} << 20);
  const auto said = [&](CUresult answer) {
    strict::seen().create_answers = answer;
    std::string text;
    try {
      arena->reach(1);
    } catch (const SystemError& error) {
      text = error.what();
    }
    strict::seen().create_answers = CUDA_SUCCESS;
    return text;
  };
  EXPECT_NE(said(CUDA_ERROR_OUT_OF_MEMORY).find("set device.memory_bytes"), std::string::npos);
  const std::string refused = said(CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(refused.find("set device.memory_bytes"), std::string::npos) << refused;
  EXPECT_NE(refused.find("801"), std::string::npos) << refused;
  strict::seen().gives_memory_on = false;
  EXPECT_NO_THROW(arena->reach(1)) << "where no other process can be given it, it is for this one alone";
  strict::seen().gives_memory_on = true;
}

// A rank has contexts on no device but its own: each takes memory, and a device that is for one process alone
// refuses the second.
TEST(Devices, ARankOpensItsOwnAlone) {
  strict::seen().opened.clear();
  const auto device = device::cuda_device({.on_host = 1, .ranks = 2});
  EXPECT_GT(device->memory_bytes(), 0);
  const auto arena = device->arena(int64_t{64} << 20);
  arena->reach(1);
  EXPECT_EQ(strict::seen().opened, (std::vector{1}));
}

// Copies between ranks that are threads go over the link of their devices only where each is given the other's
// memory.
TEST(Devices, RanksOfAProcessReachEachOthersMemory) {
  const auto opened_for = [](int on_host) {
    const auto device = device::cuda_device({.on_host = on_host, .ranks = 4});
    const auto arena = device->arena(int64_t{64} << 20);
    arena->reach(1);
    return strict::seen().reached_by;
  };
  EXPECT_EQ(opened_for(0), (std::vector{0})) << "a process with one device touches no other";
  const auto first = device::cuda_device({.on_host = 0, .ranks = 4}),
             third = device::cuda_device({.on_host = 2, .ranks = 4}),
             far = device::cuda_device({.on_host = 3, .ranks = 4});
  EXPECT_EQ(opened_for(0), (std::vector{0, 2}));
  EXPECT_EQ(opened_for(2), (std::vector{2, 0}));
  EXPECT_EQ(opened_for(3), (std::vector{3})) << "it reaches no other";
}

/// Facts by name.
std::map<std::string, device::DeviceFact> facts() {
  std::map<std::string, device::DeviceFact> all;
  for (device::DeviceFact& fact : device::cuda_facts({})) {
    EXPECT_EQ(fact.good, fact.remedy.empty()) << fact.what << ": " << fact.found;
    all[fact.what] = std::move(fact);
  }
  return all;
}

TEST(Facts, SayWhatTheMachineHasAndWhatIsWrongWithIt) {
  strict::seen().opened.clear();
  const auto usual = facts();
  EXPECT_EQ(strict::seen().opened, (std::vector{0})) << "to look is not to open";
  EXPECT_TRUE(usual.at("driver").good);
  EXPECT_EQ(usual.at("device 3").found, "NVIDIA H100 80GB HBM3, capability 9.0, 132 multiprocessors, 80.0 GiB");
  EXPECT_FALSE(usual.at("between devices").good) << "the last one reaches no other";
  EXPECT_NE(usual.at("between devices").found.find("3→0"), std::string::npos);
  EXPECT_EQ(usual.at("free memory").found, "80.0 GiB of 80.0 GiB; an arena may have 79.0 GiB");

  strict::seen().driver = (CUDART_VERSION / 1000 - 1) * 1000 + 40;
  strict::seen().taken_bytes = size_t{60} << 30;
  const auto wrong = facts();
  strict::seen().driver = CUDART_VERSION;
  strict::seen().taken_bytes = 0;
  EXPECT_FALSE(wrong.at("driver").good);
  EXPECT_FALSE(wrong.at("free memory").good);
}

TEST(Facts, NameWhoMayUseADevice) {
  strict::seen().compute_mode = cudaComputeModeProhibited;
  EXPECT_NE(facts().at("device 1").remedy.find("nvidia-smi -i 1 -c DEFAULT"), std::string::npos);
  strict::seen().compute_mode = cudaComputeModeExclusiveProcess;
  EXPECT_NE(facts().at("device 1").found.find("one process"), std::string::npos);
  strict::seen().compute_mode = cudaComputeModeDefault;
}

TEST(Facts, NameTheDeviceInUse) {
  const auto third = device::cuda_device({.on_host = 2});
  EXPECT_GT(third->memory_bytes(), 0);
  EXPECT_EQ(device::cuda_device_in_use(), "NVIDIA H100 80GB HBM3 (device 2), 80.0 GiB");
}

TEST(Facts, CopiesBetweenDevicesComeWhole) {
  std::vector<std::byte> from(1 << 20, std::byte{7}), to(from.size());
  EXPECT_GT(device::copy_between(to.data(), 1, from.data(), 0, std::ssize(from)), 0);
  EXPECT_EQ(to, from);
}

TEST(Libraries, OfOtherReleasesAreNotUsed) {
  EXPECT_EQ(device::other_major(13, 13), "");
  EXPECT_NE(device::other_major(12, 13), "");
  EXPECT_EQ(device::other_cuda(13020, 13000), "");
  EXPECT_NE(device::other_cuda(12080, 13000).find("CUDA 12"), std::string::npos);
  EXPECT_EQ(device::other_nccl(22809), "");
  EXPECT_NE(device::other_nccl(21403), "");
  EXPECT_NE(device::other_nccl(30000), "");
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
  // A process that plans before its ranks begin asks for the device first: it says that there will be several.
  unsetenv("CUDA_MODULE_LOADING");
  strict::seen().device = -1;
  device::tell_cuda_driver(true);
  EXPECT_TRUE(device::cuda_available());
  EXPECT_EQ(strict::seen().module_loading, "EAGER");
  unsetenv("CUDA_MODULE_LOADING");
}

}  // namespace
}  // namespace heddle

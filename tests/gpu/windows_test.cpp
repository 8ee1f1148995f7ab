// Exchanges through windows: the kernel in the emulator, ranks on threads; windows and launches of the tests' own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "heddle/base/random.h"
#include "heddle/comm/nccl/nccl_world.h"
#include "heddle/comm/nccl/windows/window_kernels.h"
#include "heddle/comm/nccl/windows/window_library.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/kernels/cuda/launch.h"
#include "tests/gpu/strict_nccl.h"
#include "tests/gpu/strict_runtime.h"

namespace heddle::comm::nccl {

void window_exchange_kernel(WindowArgs args);

namespace {

std::mutex mutex;
/// A window of each rank of the group, as NCCL numbers them.
struct Entered {
  std::map<int, std::byte*> memory;
};
std::map<std::pair<void*, size_t>, Entered> entered;  // by group, and how many a rank had before
std::map<std::pair<void*, int>, size_t> windows_of;
int domain_ranks = 0;  // 0: all of a communicator

struct Window {
  Entered* of;
};

void run_emulated(const WindowArgs& args, int threads) {
  kernels::cuda::launch(window_exchange_kernel, {.blocks_x = args.blocks, .threads = threads}, args, nullptr);
}

}  // namespace

// In the place of the library's.
const WindowLibrary& window_library() {
  static const WindowLibrary found = [] {
    WindowLibrary l;
    l.allocate = [](void** at, size_t bytes) {
      *at = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
      std::memset(*at, 0xa5, bytes);
      return ncclSuccess;
    };
    l.free = [](void* at) {
      std::free(at);
      return ncclSuccess;
    };
    l.enter = [](ncclComm_t comm, void* at, size_t, ncclWindow_t* window, int) {
      const std::lock_guard lock(mutex);
      const size_t number = windows_of[{comm->group, comm->rank}]++;
      Entered& all = entered[{comm->group, number}];
      all.memory[comm->rank] = static_cast<std::byte*>(at);
      *window = reinterpret_cast<ncclWindow_t>(new Window{&all});
      return ncclSuccess;
    };
    l.leave = [](ncclComm_t, ncclWindow_t window) {
      delete reinterpret_cast<Window*>(window);
      return ncclSuccess;
    };
    l.domain = [](ncclComm_t comm) {
      return ncclTeam_t{domain_ranks == 0 ? comm->size : domain_ranks, comm->rank, 1};
    };
    return l;
  }();
  return found;
}

void launch_window_places(ncclWindow_t window, int ranks, std::byte** places, void* stream) {
  struct Job {
    Entered* of;
    int ranks;
    std::byte** places;
  };
  cudaLaunchHostFunc(
      static_cast<cudaStream_t>(stream),
      [](void* data) {
        const std::unique_ptr<Job> job(static_cast<Job*>(data));
        while (true) {  // registering is for all ranks together
          const std::lock_guard lock(mutex);
          if (job->of->memory.size() == static_cast<size_t>(job->ranks)) break;
        }
        for (int r = 0; r < job->ranks; ++r) job->places[r] = job->of->memory.at(r);
      },
      new Job{reinterpret_cast<Window*>(window)->of, ranks, places});
}

void launch_window_exchange(const WindowArgs& args, void* stream) {
  cudaLaunchHostFunc(
      static_cast<cudaStream_t>(stream),
      [](void* data) {
        const std::unique_ptr<WindowArgs> args(static_cast<WindowArgs*>(data));
        run_emulated(*args, 64);
      },
      new WindowArgs(args));
}

namespace {

struct Rng {
  explicit Rng(uint64_t seed) : key(seed) {}
  uint64_t below(uint64_t n) { return key.bits(next++) % n; }
  RandomKey key;
  uint64_t next = 0;
};

/// Runs of a message's bytes: drawn cuts, drawn gaps between them.
std::vector<WindowRun> drawn_runs(Rng& rng, std::vector<std::byte>& room, int64_t bytes) {
  room.assign(static_cast<size_t>(bytes + 400), std::byte{0xee});
  std::vector<WindowRun> runs;
  std::byte* at = room.data();
  for (int64_t left = bytes; left > 0;) {
    const int64_t part = runs.size() == 7 ? left : 1 + static_cast<int64_t>(rng.below(static_cast<uint64_t>(left)));
    at += rng.below(40);
    runs.push_back({at, part});
    at += part;
    left -= part;
  }
  return runs;
}

// Whatever the lengths, the cuts at both ends and the order in which ranks come, every byte comes to its place and
// no other is touched; also when boxes are used again and again.
TEST(Windows, AMessageOfAnyLengthComesWhole) {
  for (const auto& [ranks, blocks, box] :
       std::vector<std::tuple<int, int, int64_t>>{{2, 1, 16}, {3, 2, 48}, {5, 3, 4096}}) {
    constexpr int kExchanges = 12;
    const auto n = static_cast<size_t>(ranks);
    std::vector<std::vector<std::byte>> windows(n);
    for (auto& w : windows) w.assign(static_cast<size_t>(window_bytes(ranks, blocks, box)) + 16, std::byte{0});
    const auto aligned = [&](size_t r) {
      const auto at = reinterpret_cast<uintptr_t>(windows[r].data());
      return windows[r].data() + (16 - at % 16) % 16;
    };
    const uint32_t stop = 0;
    std::vector<std::thread> threads;
    for (size_t me = 0; me < n; ++me) {
      threads.emplace_back([&, me, ranks = ranks, blocks = blocks, box = box] {
        Rng own(100 + me);
        for (int e = 0; e < kExchanges; ++e) {
          // What goes from a to b is drawn alike by both.
          const auto length = [&](size_t a, size_t b) -> int64_t {
            Rng both(static_cast<uint64_t>(e) * 1000 + a * 10 + b);
            const uint64_t kind = both.below(4);
            return kind == 0 ? 0 : static_cast<int64_t>(both.below(kind == 1 ? 9 : kind == 2 ? 300 : 9000));
          };
          const auto byte_of = [&](size_t a, size_t b, int64_t i) {
            return static_cast<std::byte>((static_cast<int64_t>(a * 31 + b * 7) + e * 13 + i * 5 + i / 251) & 0xff);
          };
          std::vector<WindowPeer> peers(n);
          std::vector<std::vector<std::byte>> out(n), in(n);
          std::vector<std::vector<WindowRun>> sends(n), receives(n);
          for (size_t p = 0; p < n; ++p) {
            const int64_t to = p == me ? 0 : length(me, p), from = p == me ? 0 : length(p, me);
            sends[p] = drawn_runs(own, out[p], to);
            receives[p] = drawn_runs(own, in[p], from);
            int64_t i = 0;
            for (const WindowRun& run : sends[p]) {
              for (int64_t b = 0; b < run.bytes; ++b) run.at[b] = byte_of(me, p, i++);
            }
            peers[p] = {aligned(p),
                        to,
                        from,
                        sends[p].data(),
                        receives[p].data(),
                        static_cast<int32_t>(sends[p].size()),
                        static_cast<int32_t>(receives[p].size())};
          }
          if (own.below(3) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(own.below(5)));
          run_emulated({peers.data(), &stop, box, static_cast<int32_t>(me), ranks, blocks}, 32);
          for (size_t p = 0; p < n; ++p) {
            std::vector<std::byte> expected(in[p].size(), std::byte{0xee});
            int64_t i = 0;
            for (const WindowRun& run : receives[p]) {
              for (int64_t b = 0; b < run.bytes; ++b)
                expected[static_cast<size_t>(run.at - in[p].data() + b)] = byte_of(p, me, i++);
            }
            EXPECT_TRUE(expected == in[p]) << "exchange " << e << " from rank " << p << " to rank " << me;
          }
        }
      });
    }
    for (std::thread& t : threads) t.join();
  }
}

// A peer that never comes is not waited for once all are to stop.
TEST(Windows, AWaitEndsWhenAllStop) {
  std::vector<std::byte> window(static_cast<size_t>(window_bytes(2, 1, 64)), std::byte{0}), data(1000);
  const WindowRun run{data.data(), 1000};
  const std::vector<WindowPeer> peers{{window.data(), 0, 0, nullptr, nullptr, 0, 0},
                                      {window.data(), 0, 1000, nullptr, &run, 0, 1}};
  uint32_t stop = 0;
  std::thread waits([&] { run_emulated({peers.data(), &stop, 64, 0, 2, 1}, 32); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::atomic_ref(stop).store(1);
  waits.join();
}

struct Stream {
  Stream() { cudaStreamCreateWithFlags(&stream, 0); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t stream = nullptr;
};

class AskedFor {
 public:
  AskedFor() { setenv("HEDDLE_NCCL_WINDOWS", "1", 1); }
  ~AskedFor() { unsetenv("HEDDLE_NCCL_WINDOWS"); }
};

/// Each rank sends r·n + p + i to rank p, twice as many from exchange to exchange, which nothing stands between.
void exchange_in_a_row(World& control, int64_t numbers) {
  NcclWorld world(control);
  const Stream comm;
  std::vector<int> all;
  for (int r = 0; r < control.size(); ++r) all.push_back(r);
  const auto group = world.communicator(all, "comm.ep");
  group->run_on(comm.stream);
  const int me = control.rank(), n = control.size();
  constexpr int kExchanges = 4;
  std::vector<std::vector<int>> sends(kExchanges), receives(kExchanges);
  std::vector<std::vector<Piece>> pieces(kExchanges);
  for (size_t e = 0; e < kExchanges; ++e) {
    const int64_t each = numbers << e;
    for (int p = 0; p < n; ++p) {
      pieces[e].push_back({p, 4 * each * p, 4 * each});
      for (int64_t i = 0; i < each; ++i) sends[e].push_back(me * n + p + static_cast<int>(i));
    }
    receives[e].assign(sends[e].size(), -1);
    group->exchange(sends[e].data(), pieces[e], receives[e].data(), pieces[e]);
  }
  cudaStreamSynchronize(comm.stream);
  for (size_t e = 0; e < kExchanges; ++e) {
    const int64_t each = numbers << e;
    for (int p = 0; p < n; ++p) {
      for (int64_t i = 0; i < each; ++i) {
        ASSERT_EQ(receives[e][static_cast<size_t>(p * each + i)], p * n + me + static_cast<int>(i));
      }
    }
  }
}

TEST(Windows, CommunicatorsExchangeThroughThem) {
  const AskedFor asked;
  windows_of.clear();
  const int before = static_cast<int>(entered.size());
  run_on_threads(3, [](World& control) { exchange_in_a_row(control, 3); });
  run_on_threads(2, [](World& control) { exchange_in_a_row(control, 150000); });  // several rounds of all blocks
  EXPECT_EQ(static_cast<int>(entered.size()), before + 2);
}

TEST(Windows, RanksThatReachNoPeersMemorySend) {
  const AskedFor asked;
  domain_ranks = 2;
  const size_t before = entered.size();
  run_on_threads(4, [](World& control) { exchange_in_a_row(control, 5); });
  EXPECT_EQ(entered.size(), before);
  domain_ranks = 0;
}

}  // namespace
}  // namespace heddle::comm::nccl

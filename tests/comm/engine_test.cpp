// Ranks whose messages the copy engine moves: the cases of every world with messages of each length taken; what is
// left to the other world; memory that is poisoned, shown and given back; ranks that fail, and where copies run.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "heddle/base/failure.h"
#include "heddle/comm/engine/copy_core.h"
#include "heddle/comm/engine/engine_world.h"
#include "heddle/comm/threads/thread_world.h"
#include "tests/comm/world_cases.h"

namespace heddle::comm {
namespace {

/// Every rank, through an engine.
void on_engine(const std::vector<int>& nodes, int64_t least_bytes, const std::function<void(EngineWorld&)>& body) {
  const auto ranks = static_cast<int>(nodes.size());
  run_on_threads(
      ranks,
      [&](World& world) {
        EngineWorld engine(world, CopyWorker::of_process(), least_bytes, find_reach(world));
        body(engine);
      },
      nodes);
}

TEST(Engine, KeepsEveryCaseOfEveryWorld) {
  for (const std::vector<int>& nodes : {std::vector<int>{0}, {0, 0}, {0, 0, 1}, {0, 1, 0, 1, 2, 2, 0, 1}}) {
    for (const int64_t least_bytes : {1, 300, 256 << 10}) {
      for (const WorldCase& one : world_cases()) {
        SCOPED_TRACE(fmt::format("{} on {} ranks from {} bytes", one.name, nodes.size(), least_bytes));
        on_engine(nodes, least_bytes, [&](World& world) { one.run(world, 3 + nodes.size()); });
      }
    }
  }
}

TEST(Engine, TakesWhatIsLongAndNear) {
  on_engine({0, 0, 1}, 100, [](EngineWorld& world) {
    const auto group = world.communicator({0, 1, 2}, "test.near");
    std::vector<std::byte> from(1000), to(1000);
    // From each rank to the next two: 50 and 50 bytes, which are 100 together, and 99.
    const auto pieces = [&](int by) {
      const int a = (world.rank() + by + 3) % 3, b = (world.rank() + 2 * by + 3) % 3;
      return std::vector<Piece>{{a, 0, 50}, {b, 100, 99}, {a, 300, 50}, {a, 500, 0}};
    };
    group->exchange(from.data(), pieces(1), to.data(), pieces(-1));
    const EngineTally t = world.tally();
    const int next = (world.rank() + 1) % 3;
    const bool near = world.node_of(next) == world.node_of(world.rank());
    const bool after_near = world.node_of((world.rank() + 2) % 3) == world.node_of(world.rank());
    EXPECT_EQ(t.messages, near ? 1 : 0);
    EXPECT_EQ(t.bytes, near ? 100 : 0);
    EXPECT_EQ(t.short_bytes, after_near ? 99 : 0);
    EXPECT_EQ(t.far_bytes, (near ? 0 : 100) + (after_near ? 0 : 99));
    EXPECT_EQ(group->traffic().within_node_bytes, (near ? 100 : 0) + (after_near ? 99 : 0));
  });
}

// Late ranks, drawn; what lands lies in memory full of NaNs, between bytes that nobody may touch (world_cases'
// exchange_and_check), and the sender's memory is overwritten as soon as its call returns.
TEST(Engine, NobodyReturnsBeforeHisPeersHaveRead) {
  on_engine({0, 0, 0}, 1, [](EngineWorld& world) {
    const auto group = world.communicator({0, 1, 2}, "test.late");
    constexpr int64_t kBytes = 3 << 20;
    std::vector<unsigned char> from(kBytes), to(3 * kBytes);
    for (int round = 0; round < 12; ++round) {
      std::memset(from.data(), 3 * round + world.rank(), kBytes);
      std::memset(to.data(), 0xff, to.size());
      std::vector<Piece> sends, receives;
      for (int p = 0; p < 3; ++p) {
        const bool none = (round + world.rank() + p) % 4 == 0;
        sends.push_back({p, 0, none ? 0 : kBytes - p});  // to each rank another number of bytes
        receives.push_back({p, p * kBytes, none ? 0 : kBytes - world.rank()});
      }
      std::this_thread::sleep_for(std::chrono::milliseconds((round * 7 + world.rank() * 5) % 11));
      group->exchange(from.data(), sends, to.data(), receives);
      std::memset(from.data(), 0xee, kBytes);
      for (int p = 0; p < 3; ++p) {
        const int64_t bytes = receives[static_cast<size_t>(p)].bytes;
        for (int64_t i = 0; i < kBytes; ++i) {
          const int want = i < bytes ? 3 * round + p : 0xff;
          ASSERT_EQ(to[static_cast<size_t>(p * kBytes + i)], want) << round << " from " << p << " at " << i;
        }
      }
    }
  });
}

TEST(Engine, SidesThatDisagreeFail) {
  for (const int64_t expected : {99, 101, 100}) {  // the last in other pieces
    std::string found;
    try {
      on_engine({0, 0}, 10, [&](EngineWorld& world) {
        const auto group = world.communicator({0, 1}, "test.lengths");
        std::vector<std::byte> data(400);
        const int peer = 1 - world.rank();
        std::vector<Piece> receives{{peer, 0, world.rank() == 0 ? expected : 100}};
        if (world.rank() == 0 && expected == 100) receives = {{peer, 0, 60}, {peer, 60, 40}};
        group->exchange(data.data(), std::vector<Piece>{{peer, 0, 100}}, data.data() + 200, receives);
      });
    } catch (const InternalError& error) {
      found = error.what();
    }
    EXPECT_NE(found.find("rank 0 expects"), found.npos) << found;
    EXPECT_NE(found.find("which sends 100"), found.npos) << found;
  }
}

// A rank is stopped while the worker reads what it shows, and gives its memory back at once.
TEST(Engine, WhoIsStoppedWaitsForItsReaders) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  for (const int stopped_ms : {0, 1, 3, 6, 10, 15, 25, 40}) {
    ThreadWorlds thread_worlds(3);
    std::vector<std::thread> threads;
    std::atomic<int> other{0};
    for (int r = 0; r < 3; ++r) {
      threads.emplace_back([&, r] {
        const auto world = thread_worlds.world(r);
        EngineWorld engine(*world, CopyWorker::of_process(), 1, find_reach(*world));
        const auto group = engine.communicator({0, 1, 2}, "test.readers");
        auto* const memory = static_cast<std::byte*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        std::memset(memory, 1, kBytes);
        std::vector<Piece> sends, receives;
        if (r == 0) sends = {{1, 0, kBytes}, {2, 0, kBytes}};
        if (r != 0) receives = {{0, 0, kBytes}};
        std::thread stopper;
        try {
          group->exchange(nullptr, {}, nullptr, {});
          if (r == 0) {
            stopper = std::thread([&thread_worlds, stopped_ms] {
              std::this_thread::sleep_for(std::chrono::milliseconds(stopped_ms));
              thread_worlds.abort("enough");
            });
          }
          group->exchange(memory, sends, memory, receives);
        } catch (const PeerError& error) {
          if (error.reason != "enough") ++other;
        }
        munmap(memory, kBytes);  // a copy that went on would end the process
        if (stopper.joinable()) stopper.join();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(other, 0) << stopped_ms;
  }
}

TEST(Engine, OneRanksFailureEndsAllWithItsWords) {
  for (const int failing : {0, 1, 2}) {
    std::string found;
    try {
      on_engine({0, 0, 0}, 1, [&](EngineWorld& world) {
        const auto group = world.communicator({0, 1, 2}, "test.failing");
        std::vector<std::byte> from(3 << 20), to(3 << 20);
        std::vector<Piece> pieces;
        for (int p = 0; p < 3; ++p) pieces.push_back({p, p << 20, 1 << 20});
        for (int round = 0;; ++round) {
          if (round == 5 && world.rank() == failing) config_error("rank {} has had enough", failing);
          if (round % 2 == 0) group->exchange(from.data(), pieces, to.data(), pieces);
          if (round % 2 == 1 && world.rank() < 2) group->send(from.data(), 1 << 20, world.rank() + 1);
          if (round % 2 == 1 && world.rank() > 0) group->receive(to.data(), 1 << 20, world.rank() - 1);
        }
      });
    } catch (const ConfigError& error) {
      found = error.what();
    }
    EXPECT_EQ(found, fmt::format("rank {} has had enough", failing));
  }
}

// A send is buffered: ranks that all send before they receive don't wait for each other.
TEST(Engine, SendsNeverWaitForTheirReceives) {
  on_engine({0, 0}, 1, [](EngineWorld& world) {
    const auto group = world.communicator({0, 1}, "test.sends");
    const int peer = 1 - world.rank();
    std::vector<int> data(100'000), got(data.size());
    for (int i = 0; i < 20; ++i) {
      std::fill(data.begin(), data.end(), 100 * world.rank() + i);
      group->send(data.data(), static_cast<int64_t>(data.size() * sizeof(int)) - 4 * i, peer);
    }
    std::fill(data.begin(), data.end(), -1);
    for (int i = 0; i < 20; ++i) {
      std::fill(got.begin(), got.end(), -7);
      group->receive(got.data(), static_cast<int64_t>(got.size() * sizeof(int)) - 4 * i, peer);
      const auto edge = got.end() - i;
      EXPECT_TRUE(std::all_of(got.begin(), edge, [&](int x) { return x == 100 * peer + i; })) << i;
      EXPECT_TRUE(std::all_of(edge, got.end(), [](int x) { return x == -7; })) << i;
    }
    EXPECT_EQ(world.tally().messages, 20);
  });
}

int64_t processor_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// What the threads that call pay of 32 MiB: with the engine not a tenth of what copying takes them. Processor time,
// so that other programs don't count.
TEST(Engine, CallersMoveNoBytes) {
  constexpr int64_t kBytes = int64_t{32} << 20;
  std::atomic<int64_t> usual_ns{0}, engine_ns{0};
  on_engine({0, 0}, 1, [&](EngineWorld& world) {
    std::vector<std::byte> from(kBytes, std::byte{1}), to(kBytes, std::byte{2});
    const std::vector<Piece> pieces{{1 - world.rank(), 0, kBytes}};
    const auto group = world.communicator({0, 1}, "test.cost");
    for (int round = 0; round < 5; ++round) {
      const int64_t began = processor_ns();
      group->exchange(from.data(), pieces, to.data(), pieces);
      engine_ns += processor_ns() - began;
      const int64_t copied = processor_ns();
      std::memcpy(to.data(), from.data(), kBytes);
      usual_ns += processor_ns() - copied;
    }
  });
  EXPECT_LT(engine_ns, usual_ns / 10);
}

TEST(Engine, ThreadsStayOffTheCopyCore) {
  const CopyCore& core = copy_core();
  if (core.core < 0) GTEST_SKIP() << copy_core_available().reason;
  const auto may = [&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return CPU_ISSET(static_cast<size_t>(core.core), &set) != 0;
  };
  EXPECT_TRUE(may());
  {
    const OffCopyCore off;
    EXPECT_FALSE(may());
    std::thread([&] { EXPECT_FALSE(may()); }).join();
  }
  EXPECT_TRUE(may());
}

}  // namespace
}  // namespace heddle::comm

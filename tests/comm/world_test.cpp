// The cases that hold for every world, with ranks as threads.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <thread>

#include "heddle/base/failure.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/comm/threads/thread_world.h"
#include "tests/comm/world_cases.h"

namespace heddle::comm {
namespace {

/// Runs `body` as every rank; the first failure ends the others too.
void on_threads(ThreadWorlds& thread_worlds, const std::function<void(World&)>& body) {
  std::vector<std::string> failures(static_cast<size_t>(thread_worlds.size()));
  std::vector<std::thread> threads;
  for (int r = 0; r < thread_worlds.size(); ++r) {
    threads.emplace_back([&, r] {
      const auto world = thread_worlds.world(r);
      try {
        body(*world);
      } catch (const std::exception& error) {
        failures[static_cast<size_t>(r)] = error.what();
        thread_worlds.abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t r = 0; r < failures.size(); ++r) EXPECT_EQ(failures[r], "") << "rank " << r;
}

TEST(World, ThreadsKeepEveryCase) {
  for (const std::vector<int>& nodes : {std::vector<int>{0}, {0, 1}, {0, 0, 1}, {0, 1, 0, 1, 2, 2, 0, 1}}) {
    for (const WorldCase& one : world_cases()) {
      SCOPED_TRACE(fmt::format("{} on {} ranks", one.name, nodes.size()));
      ThreadWorlds thread_worlds(nodes);
      on_threads(thread_worlds, [&](World& world) { one.run(world, 1 + nodes.size()); });
    }
  }
}

TEST(World, SidesThatDisagreeOnALengthFail) {
  ThreadWorlds thread_worlds(2);
  int named = 0;
  on_threads(thread_worlds, [&](World& world) {
    const auto group = world.communicator({0, 1}, "test.lengths");
    std::vector<std::byte> data(200);
    const std::vector<Piece> sends{{1 - world.rank(), 0, 100}},
        receives{{1 - world.rank(), 0, world.rank() ? 100 : 101}};
    try {
      group->exchange(data.data(), sends, data.data() + 100, receives);
      ADD_FAILURE() << "went through on rank " << world.rank();
    } catch (const InternalError& error) {
      const std::string what = error.what();
      named += what.find("rank 0") != what.npos && what.find("rank 1") != what.npos;
      world.abort(what);
    } catch (const SystemError&) {
    }
  });
  EXPECT_EQ(named, 1);
}

// One rank's work fails on its second piece, while it takes the others': all of them end, with its reason.
TEST(World, APieceThatFailsEndsAll) {
  ThreadWorlds thread_worlds(3);
  int told = 0;
  std::mutex mutex;
  on_threads(thread_worlds, [&](World& world) {
    const auto group = world.communicator({0, 1, 2}, "test.pieces");
    std::vector<std::byte> data(600);
    std::vector<Piece> sends, receives;
    for (int p = 0; p < 3; ++p) {
      for (int k = 0; k < 2; ++k) {
        sends.push_back({p, p * 100 + k * 50, 50});
        receives.push_back({p, 300 + p * 100 + k * 50, 50});
      }
    }
    try {
      group->exchange_by_pieces({.send = data.data(),
                                 .sends = sends,
                                 .receive = data.data(),
                                 .receives = receives,
                                 .ready =
                                     [&](size_t i) {
                                       if (world.rank() == 1 && i == 1) throw SystemError(0, "the kernel fails");
                                     },
                                 .arrived = nullptr});
      ADD_FAILURE() << "went through on rank " << world.rank();
    } catch (const PeerError& error) {
      const std::lock_guard lock(mutex);
      told += error.reason == "rank 1: the kernel fails";
    } catch (const SystemError& error) {
      EXPECT_EQ(world.rank(), 1);
      world.abort(fmt::format("rank 1: {}", error.what()));
    }
  });
  EXPECT_EQ(told, 2);
}

TEST(World, AbortReachesEverybody) {
  ThreadWorlds thread_worlds(4);
  on_threads(thread_worlds, [&](World& world) {
    const auto group = world.communicator({0, 1, 2, 3}, "test.abort");
    if (world.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      world.abort("rank 2 had enough");
    }
    std::byte byte{};
    EXPECT_THROW(group->receive(&byte, 1, (world.rank() + 1) % 4), SystemError);
    EXPECT_THROW(group->exchange(nullptr, {}, nullptr, {}), SystemError);
  });
}

// Rank 0 is stopped while the others still read what it shows: it may leave, and give its memory back, only when
// they have.
TEST(World, WhoIsStoppedWaitsForItsReaders) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  for (const int stopped_ms : {0, 1, 2, 3, 5, 8, 12}) {  // some of these fall into the copies
    ThreadWorlds thread_worlds(3);
    on_threads(thread_worlds, [&](World& world) {
      const auto group = world.communicator({0, 1, 2}, "test.readers");
      const bool shows = world.rank() == 0;
      auto* const shown = static_cast<std::byte*>(
          mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      std::vector<Piece> sends, receives;
      if (shows) sends = {{1, 0, kBytes}, {2, 0, kBytes}};
      std::vector<std::byte> into(shows ? 1 : kBytes);
      if (!shows) receives = {{0, 0, kBytes}};
      std::memset(shown, 1, kBytes);
      std::thread stopper;
      try {
        group->exchange(nullptr, {}, nullptr, {});  // all are there, with memory that they have touched
        if (shows) {
          stopper = std::thread([&thread_worlds, stopped_ms] {
            std::this_thread::sleep_for(std::chrono::milliseconds(stopped_ms));
            thread_worlds.abort("enough");
          });
        }
        group->exchange(shown, sends, into.data(), receives);
      } catch (const PeerError& error) {
        EXPECT_EQ(error.reason, "enough");
      }
      munmap(shown, kBytes);
      if (stopper.joinable()) stopper.join();
    });
  }
}

struct Variable {
  Variable(const char* name, const char* value) : name(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
  const char* name;
};

TEST(Launcher, IsSeenInTheEnvironment) {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}) {
    unsetenv(name);
  }
  EXPECT_FALSE(launched_by_mpi());
  EXPECT_EQ(launched_ranks(), 0);
  {
    const Variable size("OMPI_COMM_WORLD_SIZE", "4");
    EXPECT_TRUE(launched_by_mpi());
    EXPECT_EQ(launched_ranks(), 4);
  }
  const Variable task("SLURM_PROCID", "0");
  EXPECT_FALSE(launched_by_mpi()) << "a batch script is no rank";
  const Variable tasks("SLURM_STEP_NUM_TASKS", "8");
  EXPECT_TRUE(launched_by_mpi());
  EXPECT_EQ(launched_ranks(), 8);
}

}  // namespace
}  // namespace heddle::comm

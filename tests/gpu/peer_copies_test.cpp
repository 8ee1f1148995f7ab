// Messages between GPUs by copies, over the tests' own runtime: what a kernel that holds every multiprocessor
// stops, and what it doesn't.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "heddle/comm/device_world.h"
#include "heddle/comm/nccl/nccl_world.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/kernels/cuda/launch.h"
#include "tests/gpu/strict_runtime.h"

namespace heddle::comm::nccl {
namespace {

struct Nothing {
  int x;
};
void holder(Nothing) {}
void small(Nothing) {}

struct PeerStream {
  PeerStream() { cudaStreamCreateWithFlags(&stream, 0); }
  ~PeerStream() { cudaStreamDestroy(stream); }
  PeerStream(const PeerStream&) = delete;
  PeerStream& operator=(const PeerStream&) = delete;
  bool ends_within(double seconds) const {
    cudaEvent_t event = nullptr;
    cudaEventCreate(&event);
    cudaEventRecord(event, stream);
    bool ended = false;
    for (int i = 0; i < seconds * 200 && !ended; ++i) {
      ended = cudaEventQuery(event) == cudaSuccess;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (ended) cudaEventDestroy(event);  // else it is still to be recorded
    return ended;
  }
  void wait() const { cudaStreamSynchronize(stream); }
  cudaStream_t stream = nullptr;
};

std::vector<int> all_ranks_of(const World& world) {
  std::vector<int> all;
  for (int r = 0; r < world.size(); ++r) all.push_back(r);
  return all;
}

// The kernel holds all until the collective has ended on every rank. By copies it does; by kernels it would not, on
// none, and the holder is released so that the test ends.
TEST(PeerCopies, GoOnWhileAKernelHoldsEveryMultiprocessor) {
  strict::declare_holder(reinterpret_cast<const void*>(holder));
  strict::declare_kernel(reinterpret_cast<const void*>(small), 0);
  for (const bool by_copies : {true, false}) {
    std::atomic<int> ended{0}, came{0};
    run_on_threads(3, [&](World& control) {
      strict::device_of_thread() = 0;
      EngineCounts counts;
      std::unique_ptr<World> world = device_world(control);
      if (by_copies) {
        ASSERT_TRUE(peer_copies_available(control));
        world = with_peer_copies(std::move(world), control, 64, counts);
      }
      const PeerStream compute, comm, other;
      const auto group = world->communicator(all_ranks_of(control), "comm.ep");
      group->run_on(comm.stream);
      const int me = control.rank();
      std::vector<int> from(3000), to(3000, -1);
      for (int p = 0; p < 3; ++p) std::fill_n(from.begin() + 1000 * p, 1000, 10 * me + p);
      std::vector<Piece> out, in;  // to each another number of bytes, in two pieces, one of them maybe empty
      for (int p = 0; p < 3; ++p) {
        out.push_back({p, 4000 * p, 400 * p});
        out.push_back({p, 4000 * p + 400 * p, 2000 + 400 * me});
        in.push_back({p, 4000 * p, 400 * me});
        in.push_back({p, 4000 * p + 400 * me, 2000 + 400 * p});
      }
      ++came;
      while (came < 3) std::this_thread::yield();
      if (me == 0) {
        kernels::cuda::launch(holder, {}, {1}, compute.stream);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        kernels::cuda::launch(small, {}, {1}, other.stream);  // another kernel does not begin
        EXPECT_EQ(cudaStreamQuery(other.stream), cudaErrorNotReady);
        ++came;
      }
      while (came < 4) std::this_thread::yield();
      const int launched = strict::seen().launches;
      group->exchange(from.data(), out, to.data(), in);
      if (comm.ends_within(by_copies ? 20 : 0.3)) ++ended;
      if (by_copies) {
        EXPECT_EQ(strict::seen().launches, launched) << "a message launched a kernel";
      }
      ++came;
      while (came < 7) std::this_thread::yield();
      if (me == 0) {
        if (by_copies) EXPECT_EQ(cudaStreamQuery(compute.stream), cudaErrorNotReady) << "nothing was held";
        strict::release_holders();
      }
      compute.wait();
      comm.wait();
      for (int p = 0; p < 3; ++p) {
        for (int i = 0; i < 1000; ++i) {
          const int want = i < 500 + 100 * p + 100 * me ? 10 * p + me : -1;
          ASSERT_EQ(to[static_cast<size_t>(1000 * p + i)], want) << me << " of " << p << " at " << i;
        }
      }
    });
    EXPECT_EQ(ended, by_copies ? 3 : 0);
  }
}

// Hosts run ahead of their streams and of each other, and nobody's memory is written before its stream is there.
TEST(PeerCopies, KeepTheOrderOfStreams) {
  run_on_threads(2, [&](World& control) {
    strict::device_of_thread() = 0;
    EngineCounts counts;
    const std::unique_ptr<World> world = with_peer_copies(device_world(control), control, 1, counts);
    const PeerStream comm;
    const auto group = world->communicator({0, 1}, "comm.tp");
    group->run_on(comm.stream);
    const int me = control.rank();
    constexpr int kRounds = 40;
    std::vector<int> from(1000), to(1000), seen(kRounds * 1000);
    std::vector<std::vector<int>> made(kRounds, std::vector<int>(1000));
    for (int round = 0; round < kRounds; ++round) {
      std::fill(made[static_cast<size_t>(round)].begin(), made[static_cast<size_t>(round)].end(), 100 * me + round);
      cudaMemcpyAsync(from.data(), made[static_cast<size_t>(round)].data(), 4000, cudaMemcpyDefault, comm.stream);
      if (round % 7 == 3 * me) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      group->exchange(from.data(), std::vector<Piece>{{1 - me, 0, 4000}}, to.data(),
                      std::vector<Piece>{{1 - me, 0, 4000}});
      cudaMemcpyAsync(seen.data() + 1000 * round, to.data(), 4000, cudaMemcpyDefault, comm.stream);
    }
    comm.wait();
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < 1000; ++i) ASSERT_EQ(seen[static_cast<size_t>(1000 * round + i)], 100 * (1 - me) + round);
    }
    EXPECT_EQ(group->traffic().within_node_bytes, kRounds * 4000);
    EXPECT_EQ(counts.tally().bytes, kRounds * 4000);
  });
}

// Two hosts are a message ahead of the third: their next copies must not stand in front of his.
TEST(PeerCopies, HostsThatAreAheadHoldNobodyUp) {
  run_on_threads(3, [&](World& control) {
    strict::device_of_thread() = 0;
    EngineCounts counts;
    const std::unique_ptr<World> world = with_peer_copies(device_world(control), control, 1, counts);
    const PeerStream comm;
    const auto group = world->communicator(all_ranks_of(control), "comm.tp");
    group->run_on(comm.stream);
    const int me = control.rank();
    if (me == 2) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::vector<int> from(3), to(9);
    std::vector<Piece> out, in;
    for (int p = 0; p < 3; ++p) {
      out.push_back({p, 0, 4});
      in.push_back({p, 4 * p, 4});
    }
    for (int round = 0; round < 3; ++round) {
      from[static_cast<size_t>(round)] = 10 * round + me;
      group->exchange(from.data() + round, out, to.data() + 3 * round, in);
    }
    const bool ended = comm.ends_within(10);
    EXPECT_TRUE(ended) << "rank " << me;
    if (!ended) world->abort("streams wait for each other");
    comm.wait();
    for (int k = 0; ended && k < 9; ++k) EXPECT_EQ(to[static_cast<size_t>(k)], 10 * (k / 3) + k % 3);
  });
}

TEST(PeerCopies, AFailedRankEndsTheOthers) {
  std::string found;
  try {
    run_on_threads(2, [&](World& control) {
      strict::device_of_thread() = 0;
      EngineCounts counts;
      const std::unique_ptr<World> world = with_peer_copies(device_world(control), control, 1, counts);
      const PeerStream comm;
      const auto group = world->communicator({0, 1}, "comm.tp");
      group->run_on(comm.stream);
      std::vector<int> from(1000), to(1000);
      if (control.rank() == 1) {
        for (;;) {
          group->exchange(from.data(), std::vector<Piece>{{0, 0, 4000}}, to.data(),
                          std::vector<Piece>{{0, 0, 4000}});
          comm.wait();  // for ever, if nobody ended it
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      world->abort("rank 0 has failed");
      throw SystemError(1, "rank 0 has failed");
    });
  } catch (const Error& error) {
    found = error.what();
  }
  EXPECT_NE(found.find("rank 0 has failed"), found.npos) << found;
}

}  // namespace
}  // namespace heddle::comm::nccl

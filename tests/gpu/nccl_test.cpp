// Ranks over NCCL, on threads and an NCCL of the test's own (strict_nccl.cpp).
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "heddle/comm/nccl/nccl_world.h"
#include "heddle/comm/threads/thread_world.h"
#include "tests/gpu/strict_nccl.h"
#include "tests/gpu/strict_runtime.h"

namespace heddle::comm::nccl {

namespace {

struct Stream {
  Stream() { cudaStreamCreateWithFlags(&stream, 0); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void wait() const { cudaStreamSynchronize(stream); }
  cudaStream_t stream = nullptr;
};

std::vector<int> all_of(const World& world) {
  std::vector<int> all;
  for (int r = 0; r < world.size(); ++r) all.push_back(r);
  return all;
}

void wait_until(const std::atomic<bool>& flag) {
  for (int i = 0; i < 2000 && !flag; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(flag) << "the other rank's host does not come back";
}

TEST(Nccl, ASendNeverWaitsForItsReceive) {
  std::atomic<bool> sent = false;
  run_on_threads(2, [&](World& control) {
    strict::device_of_thread() = 0;
    NcclWorld world(control);
    const Stream compute, comm;
    const auto line = world.communicator({0, 1}, "comm.pp.forward");
    line->run_on(comm.stream);
    constexpr int kMessages = 6;
    std::vector<std::vector<int>> data;
    if (control.rank() == 0) {
      for (int m = 0; m < kMessages; ++m) {
        data.emplace_back(1000, m + 1);
        line->send(data.back().data(), 4000, 1);
      }
      sent = true;
    } else {
      wait_until(sent);
      for (int m = 0; m < kMessages; ++m) line->receive(data.emplace_back(1000).data(), 4000, 0);
    }
    comm.wait();
    if (control.rank() == 1) {
      for (int m = 0; m < kMessages; ++m) EXPECT_EQ(data[static_cast<size_t>(m)], std::vector<int>(1000, m + 1));
    }
  });
}

// As the two ranks in the middle of DualPipe do.
TEST(Nccl, RanksMaySendToEachOtherFirst) {
  run_on_threads(4, [&](World& control) {
    strict::device_of_thread() = 0;
    NcclWorld world(control);
    const Stream up, down;
    const auto forward = world.communicator(all_of(control), "comm.pp.forward");
    const auto backward = world.communicator(all_of(control), "comm.pp.backward");
    forward->run_on(up.stream);
    backward->run_on(down.stream);
    const int me = control.rank(), n = control.size();
    int to_next = 10 * me, to_last = 10 * me + 1, from_last = -1, from_next = -1;
    for (int round = 0; round < 3; ++round) {
      if (me + 1 < n) forward->send(&to_next, 4, me + 1);
      if (me > 0) backward->send(&to_last, 4, me - 1);
      if (me + 1 < n) backward->receive(&from_next, 4, me + 1);
      if (me > 0) forward->receive(&from_last, 4, me - 1);
      up.wait();
      down.wait();
      EXPECT_TRUE(me + 1 == n || from_next == 10 * (me + 1) + 1);
      EXPECT_TRUE(me == 0 || from_last == 10 * (me - 1));
    }
  });
}

TEST(Nccl, ExchangesBringEveryPiece) {
  run_on_threads(3, [&](World& control) {
    strict::device_of_thread() = 0;
    NcclWorld world(control);
    const Stream comm;
    const auto group = world.communicator(all_of(control), "comm.ep");
    group->run_on(comm.stream);
    const int me = control.rank();
    int sends[3], receives[3] = {-1, -1, -1};
    std::vector<Piece> out, in;
    for (int p = 0; p < 3; ++p) {
      sends[p] = 10 * me + p;
      out.push_back({p, 4 * p, 4});
      in.push_back({p, 4 * p, 4});
    }
    group->exchange(sends, out, receives, in);
    comm.wait();
    for (int p = 0; p < 3; ++p) EXPECT_EQ(receives[p], 10 * p + me);
  });
}

// What waits on a device for a rank that has failed ends.
TEST(Nccl, AFailedRankEndsTheOthers) {
  EXPECT_THROW(run_on_threads(2,
                              [&](World& control) {
                                NcclWorld world(control);
                                const Stream comm;
                                const auto line = world.communicator({0, 1}, "comm.pp.forward");
                                line->run_on(comm.stream);
                                int found = 0;
                                if (control.rank() == 1) {
                                  line->receive(&found, 4, 0);
                                  while (true) {
                                    std::this_thread::sleep_for(std::chrono::milliseconds(10));
                                    line->receive(&found, 4, 0);
                                  }
                                }
                                world.abort("rank 0 has failed");
                                throw SystemError(1, "rank 0 has failed");
                              }),
               Error);
}

/// A world that notes how many communicators of NCCL had ended when it was ended itself.
class Noting : public World {
 public:
  explicit Noting(World& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int node_of(int rank) const override { return inner_.node_of(rank); }
  const std::string& host_of(int rank) const override { return inner_.host_of(rank); }
  std::unique_ptr<Communicator> communicator(const std::vector<int>& ranks, const std::string& name) override {
    return inner_.communicator(ranks, name);
  }
  void abort(const std::string& reason, bool input) override {
    ended_before = strict::aborted_communicators();
    inner_.abort(reason, input);
  }
  int ended_before = -1;

 private:
  World& inner_;
};

// What peers say once a communicator is gone must not come before the reason why it went.
TEST(Nccl, PeersLearnOfTheReasonBeforeCommunicatorsEnd) {
  const int before = strict::aborted_communicators();
  int ended_before = -1;
  EXPECT_THROW(run_on_threads(2,
                              [&](World& control) {
                                Noting noting(control);
                                NcclWorld world(noting);
                                const auto line = world.communicator({0, 1}, "comm.pp.forward");
                                if (control.rank() == 0) {
                                  world.abort("rank 0 has failed");
                                  ended_before = noting.ended_before;
                                }
                                throw SystemError(1, "a rank has failed");
                              }),
               Error);
  EXPECT_EQ(ended_before, before);
  EXPECT_GT(strict::aborted_communicators(), before);
}

}  // namespace
}  // namespace heddle::comm::nccl

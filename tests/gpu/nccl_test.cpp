// Ranks over NCCL, on threads and an NCCL of the test's own (strict_runtime.h), which connects two ranks at their
// first message: the host waits there until the other's host has come, and fails after kPatienceSeconds. A send is
// taken when the receiver's stream has come to it, not before.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "heddle/comm/nccl/nccl_world.h"
#include "heddle/comm/threads/thread_world.h"
#include "tests/gpu/strict_runtime.h"

namespace {

std::mutex mutex;
std::condition_variable changed;

struct Message {
  const void* from = nullptr;
  size_t bytes = 0;
  bool taken = false;
};
/// What the ranks of a communicator share.
struct Group {
  int joined = 0;
  bool aborted = false;
  std::set<std::pair<int, int>> entered;  // rank r's host has come to its first message with p
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> posted;  // from r to p
};
std::map<int, Group> groups;  // by the first word of the id
int next_id = 1;

bool wait_for_host(std::unique_lock<std::mutex>& lock, const auto& come) {
  return changed.wait_for(lock, std::chrono::duration<double>(heddle::strict::kPatienceSeconds), come);
}

}  // namespace

struct ncclComm {
  Group* group;
  int rank;
  int size;
};

namespace {

struct Put {
  ncclComm_t comm;
  void* data;
  size_t bytes;
  int peer;
  bool send;
  cudaStream_t stream;
};
thread_local std::vector<Put> listed;
thread_local int depth = 0;

ncclResult_t run_listed() {
  const std::vector<Put> all = std::exchange(listed, {});
  if (all.empty()) return ncclSuccess;
  std::unique_lock lock(mutex);
  for (const Put& p : all) p.comm->group->entered.insert({p.comm->rank, p.peer});
  changed.notify_all();
  for (const Put& p : all) {
    Group& g = *p.comm->group;
    const bool come = wait_for_host(lock, [&] { return g.aborted || g.entered.contains({p.peer, p.comm->rank}); });
    if (!come) return ncclSystemError;
  }
  lock.unlock();
  struct Job {
    std::vector<Put> all;
  };
  auto* job = new Job{all};
  cudaLaunchHostFunc(
      all.front().stream,
      [](void* data) {
        const std::unique_ptr<Job> job(static_cast<Job*>(data));
        heddle::strict::await_units();  // it is a kernel
        std::unique_lock lock(mutex);
        std::vector<std::shared_ptr<Message>> sent;
        for (const Put& p : job->all) {
          if (!p.send) continue;
          sent.push_back(std::make_shared<Message>(Message{p.data, p.bytes, false}));
          p.comm->group->posted[{p.comm->rank, p.peer}].push_back(sent.back());
        }
        changed.notify_all();
        for (const Put& p : job->all) {
          if (p.send) continue;
          Group& g = *p.comm->group;
          auto& queue = g.posted[{p.peer, p.comm->rank}];
          changed.wait(lock, [&] { return g.aborted || !queue.empty(); });
          if (g.aborted) return;
          std::memcpy(p.data, queue.front()->from, std::min(p.bytes, queue.front()->bytes));
          queue.front()->taken = true;
          queue.pop_front();
          changed.notify_all();
        }
        Group& g = *job->all.front().comm->group;
        for (const auto& message : sent) changed.wait(lock, [&] { return g.aborted || message->taken; });
      },
      job);
  return ncclSuccess;
}

ncclResult_t put(const Put& p) {
  listed.push_back(p);
  return depth > 0 ? ncclSuccess : run_listed();
}

}  // namespace

// In the place of the library's (heddle/comm/nccl/library.cpp).
namespace heddle::comm::nccl {

const Library& library() {
  static const Library found = [] {
    Library l;
    l.get_unique_id = [](ncclUniqueId* id) {
      const std::lock_guard lock(mutex);
      std::memcpy(id->internal, &next_id, sizeof next_id);
      groups[next_id++];
      return ncclSuccess;
    };
    l.init_rank = [](ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
      int number = 0;
      std::memcpy(&number, id.internal, sizeof number);
      std::unique_lock lock(mutex);
      Group& group = groups.at(number);
      ++group.joined;
      changed.notify_all();
      if (!wait_for_host(lock, [&] { return group.joined == size; })) return ncclSystemError;
      *comm = new ncclComm{&group, rank, size};
      return ncclSuccess;
    };
    l.destroy = [](ncclComm_t comm) {
      delete comm;
      return ncclSuccess;
    };
    l.abort = [](ncclComm_t comm) {
      const std::lock_guard lock(mutex);
      comm->group->aborted = true;
      changed.notify_all();
      return ncclSuccess;
    };
    l.async_error = [](ncclComm_t comm, ncclResult_t* status) {
      const std::lock_guard lock(mutex);
      *status = comm->group->aborted ? ncclRemoteError : ncclSuccess;
      return ncclSuccess;
    };
    l.error_string = [](ncclResult_t) { return "a host waits for another"; };
    l.group_start = [] {
      ++depth;
      return ncclSuccess;
    };
    l.group_end = [] { return --depth > 0 ? ncclSuccess : run_listed(); };
    l.send = [](const void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
      return put({comm, const_cast<void*>(data), count, peer, true, stream});
    };
    l.receive = [](void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
      return put({comm, data, count, peer, false, stream});
    };
    return l;
  }();
  return found;
}

void check(ncclResult_t status, const char* doing) {
  if (status == ncclSuccess) return;
  throw SystemError(static_cast<int>(status), fmt::format("NCCL: {}: {}", doing, library().error_string(status)));
}

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

}  // namespace
}  // namespace heddle::comm::nccl

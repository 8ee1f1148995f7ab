// In the place of the library's: an NCCL that connects two ranks at their first message. The host waits there until
// the other's host has come, and fails after kPatienceSeconds. A send is taken when the receiver's stream has come
// to it, not before.
#include "tests/gpu/strict_nccl.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "heddle/comm/nccl/library.h"
#include "tests/gpu/strict_runtime.h"

namespace {

std::mutex mutex;
std::condition_variable changed;

}  // namespace

namespace heddle::strict {

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

}  // namespace heddle::strict

namespace {

using heddle::strict::Message;
using Group = heddle::strict::Group;
std::map<int, Group> groups;  // by the first word of the id
int next_id = 1, aborts = 0;

bool wait_for_host(std::unique_lock<std::mutex>& lock, const auto& come) {
  return changed.wait_for(lock, std::chrono::duration<double>(heddle::strict::kPatienceSeconds), come);
}

}  // namespace

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
  heddle::strict::put_kernel(
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

int heddle::strict::aborted_communicators() {
  const std::lock_guard lock(mutex);
  return aborts;
}

// In the place of the library's (heddle/comm/nccl/library.cpp).
namespace heddle::comm::nccl {

void* library_handle() { return nullptr; }

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
      ++aborts;
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

}  // namespace heddle::comm::nccl

// Ranks as threads of one process: a group is a shared board on which ranks show their buffers to each other, and
// each copies what it is to receive. Waiting ranks sleep.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "heddle/comm/communicator.h"

namespace heddle::comm {

class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : shown_(static_cast<size_t>(size)) {}
  int size() const { return static_cast<int>(shown_.size()); }
  /// The communicator of one rank; the group must outlive it.
  std::unique_ptr<Communicator> communicator(int rank);
  void abort(const std::string& reason);

 private:
  friend class ThreadCommunicator;
  struct Shown {
    const std::byte* data = nullptr;
    std::span<const Piece> pieces;
  };
  void barrier(std::unique_lock<std::mutex>& lock);
  void check() const;
  template <class Ready>
  void sleep_until(std::unique_lock<std::mutex>& lock, Ready ready) {
    changed_.wait(lock, [&] { return !reason_.empty() || ready(); });
    check();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Shown> shown_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> letters_;  // (from, to), under way
  int arrived_ = 0;
  uint64_t generation_ = 0;
  std::string reason_;
};

}  // namespace heddle::comm

#include "heddle/comm/threads/thread_group.h"

#include <cstring>

#include "heddle/base/error.h"

namespace heddle::comm {

void ThreadGroup::check() const {
  if (!reason_.empty()) throw SystemError(0, "communication stopped: " + reason_);
}

void ThreadGroup::barrier(std::unique_lock<std::mutex>& lock) {
  const uint64_t generation = generation_;
  if (++arrived_ == size()) {
    arrived_ = 0;
    ++generation_;
    changed_.notify_all();
  } else {
    sleep_until(lock, [&] { return generation_ != generation; });
  }
}

void ThreadGroup::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (reason_.empty()) reason_ = reason;
  changed_.notify_all();
}

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }

  void exchange(const void* send, std::span<const Piece> sends, void* receive,
                std::span<const Piece> receives) override {
    std::unique_lock lock(group_.mutex_);
    group_.check();
    group_.shown_[static_cast<size_t>(rank_)] = {static_cast<const std::byte*>(send), sends};
    group_.barrier(lock);
    lock.unlock();
    std::vector<size_t> next(static_cast<size_t>(size()), 0);
    for (const Piece& piece : receives) {
      const ThreadGroup::Shown& from = group_.shown_[static_cast<size_t>(piece.peer)];
      size_t& k = next[static_cast<size_t>(piece.peer)];
      while (k < from.pieces.size() && from.pieces[k].peer != rank_) ++k;
      HEDDLE_CHECK(k < from.pieces.size() && from.pieces[k].bytes == piece.bytes,
                   "rank {} expects {} bytes from rank {}, which sends {}", rank_, piece.bytes, piece.peer,
                   k < from.pieces.size() ? from.pieces[k].bytes : 0);
      if (piece.bytes > 0) {
        std::memcpy(static_cast<std::byte*>(receive) + piece.offset, from.data + from.pieces[k].offset,
                    static_cast<size_t>(piece.bytes));
      }
      ++k;
    }
    lock.lock();
    group_.barrier(lock);
  }

  void send(const void* data, int64_t bytes, int peer) override {
    const auto* from = static_cast<const std::byte*>(data);
    std::vector<std::byte> letter(from, from + bytes);
    const std::lock_guard lock(group_.mutex_);
    group_.check();
    group_.letters_[{rank_, peer}].push_back(std::move(letter));
    group_.changed_.notify_all();
  }

  void receive(void* data, int64_t bytes, int peer) override {
    std::unique_lock lock(group_.mutex_);
    auto& letters = group_.letters_[{peer, rank_}];
    group_.sleep_until(lock, [&] { return !letters.empty(); });
    const std::vector<std::byte> letter = std::move(letters.front());
    letters.pop_front();
    lock.unlock();
    HEDDLE_CHECK(std::ssize(letter) == bytes, "rank {} expects {} bytes from rank {}, which sends {}", rank_, bytes,
                 peer, letter.size());
    if (bytes > 0) std::memcpy(data, letter.data(), letter.size());
  }

  void abort(const std::string& reason) override { group_.abort(reason); }

 private:
  ThreadGroup& group_;
  int rank_;
};

std::unique_ptr<Communicator> ThreadGroup::communicator(int rank) {
  return std::make_unique<ThreadCommunicator>(*this, rank);
}

}  // namespace heddle::comm

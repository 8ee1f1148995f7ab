#include "heddle/comm/threads/thread_world.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>

#include "heddle/base/failure.h"
#include "heddle/base/parallel.h"
#include "heddle/device/device.h"

namespace heddle::comm {

class ThreadGroup {
 public:
  ThreadGroup(std::string name, std::vector<int> node_of, const std::atomic<double>& patience_s)
      : name_(std::move(name)),
        node_of_(std::move(node_of)),
        shown_(node_of_.size()),
        landings_(node_of_.size()),
        patience_s_(patience_s) {}

  int size() const { return static_cast<int>(shown_.size()); }

  void abort(const std::string& reason, bool input) {
    const std::lock_guard lock(mutex_);
    stop(reason, input);
  }

 private:
  friend class ThreadCommunicator;
  void stop(const std::string& reason, bool input = false) {
    if (reason_.empty()) {
      reason_ = reason;
      input_ = input;
    }
    changed_.notify_all();
  }
  struct Shown {
    const std::byte* data = nullptr;
    std::span<const Piece> pieces;
  };
  // The place where a rank that exchanges by pieces takes them: the maker of a ready piece writes it there himself.
  struct Landing {
    bool open = false;
    uint64_t call = 0;  // how many such exchanges its rank has begun
    std::byte* data = nullptr;
    std::span<const Piece> pieces;
    std::vector<size_t> next;   // by source: from which piece on the next one of it is to be looked for
    std::deque<size_t> landed;  // and not yet told of
    int writers = 0;
  };
  void check() const {
    if (!reason_.empty() && input_) throw ConfigError(reason_);
    if (!reason_.empty()) throw PeerError(reason_);
  }
  // Between two meetings of an exchange each reads what the others show. A rank that leaves early, because the
  // group was stopped, must not take its memory along while others read it; after that nobody begins to.
  void leave(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [&] { return readers_ == 0; });
  }
  void end_reading() {
    if (--readers_ == 0) changed_.notify_all();
  }
  template <class Ready>
  void sleep_until(std::unique_lock<std::mutex>& lock, Ready ready) {
    // Looked at in slices: of the time in which the whole process was stopped only one of them counts.
    constexpr double kSlice_s = 0.25;
    const auto over = [&] { return !reason_.empty() || ready(); };
    for (double waited_s = 0; !changed_.wait_for(lock, std::chrono::duration<double>(kSlice_s), over);) {
      waited_s += kSlice_s;
      const double patience_s = patience_s_.load(std::memory_order_relaxed);
      if (patience_s > 0 && waited_s >= patience_s)
        stop(fmt::format("{}: a rank has waited {:.0f} s for another of its {}", name_, patience_s, size()));
    }
    check();
  }
  void barrier(std::unique_lock<std::mutex>& lock) {
    const uint64_t generation = generation_;
    if (++arrived_ == size()) {
      arrived_ = 0;
      ++generation_;
      changed_.notify_all();
    } else {
      sleep_until(lock, [&] { return generation_ != generation; });
    }
  }

  std::string name_;
  std::vector<int> node_of_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Shown> shown_;
  std::vector<Landing> landings_;
  const std::atomic<double>& patience_s_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> letters_;  // (from, to), under way
  int arrived_ = 0, readers_ = 0;
  uint64_t generation_ = 0;
  std::string reason_;
  bool input_ = false;  // to blame for it
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }
  int node_of(int rank) const override { return group_.node_of_[rank]; }
  Traffic traffic() const override { return traffic_; }

  void exchange(const void* send, std::span<const Piece> sends, void* receive,
                std::span<const Piece> receives) override {
    for (const Piece& piece : sends) count_sent(traffic_, *this, piece.peer, piece.bytes);
    std::unique_lock lock(group_.mutex_);
    group_.check();
    group_.shown_[rank_] = {static_cast<const std::byte*>(send), sends};
    try {
      group_.barrier(lock);
      read_shown(lock, receive, receives);
      group_.barrier(lock);
    } catch (...) {
      group_.leave(lock);
      throw;
    }
  }

  void exchange_by_pieces(const ByPieces& all) override {
    ThreadGroup::Landing& own = group_.landings_[rank_];
    size_t left = 0;  // pieces that are still to come
    {
      std::unique_lock lock(group_.mutex_);
      group_.check();
      ++own.call;
      own.data = static_cast<std::byte*>(all.receive);
      own.pieces = all.receives;
      own.next.assign(static_cast<size_t>(size()), 0);
      own.landed.clear();
      for (const Piece& piece : all.receives) left += piece.bytes > 0 ? 1 : 0;
      own.open = true;
      group_.changed_.notify_all();
    }
    try {
      for (size_t i = 0; all.arrived && i < all.receives.size(); ++i) {
        if (all.receives[i].bytes == 0) all.arrived(i);
      }
      for (size_t i = 0; i < all.sends.size(); ++i) {
        if (all.ready) all.ready(i);
        land(all, i, left);
        // Arrived pieces are used at once where pieces have to be made; what is made already goes ahead.
        if (all.ready) take(all, left);
      }
      while (left > 0) {
        {
          std::unique_lock lock(group_.mutex_);
          group_.sleep_until(lock, [&] { return !own.landed.empty(); });
        }
        take(all, left);
      }
      close();
    } catch (...) {
      // The peers are not told: the one that ends them knows more of the cause than we do here.
      close();
      throw;
    }
  }

  void send(const void* data, int64_t bytes, int peer) override {
    count_sent(traffic_, *this, peer, bytes);
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
    HEDDLE_CHECK(std::ssize(letter) == bytes, "{}: rank {} expects {} bytes from rank {}, which sends {}",
                 group_.name_, rank_, bytes, peer, letter.size());
    if (bytes > 0) std::memcpy(data, letter.data(), letter.size());
  }

  void abort(const std::string& reason) override { group_.abort(reason, false); }

 private:
  // No piece lands here any more, and none is about to.
  void close() {
    std::unique_lock lock(group_.mutex_);
    ThreadGroup::Landing& own = group_.landings_[rank_];
    own.open = false;
    group_.changed_.wait(lock, [&] { return own.writers == 0; });
  }

  // Tells of all pieces that have landed here.
  void take(const ByPieces& all, size_t& left) {
    std::deque<size_t> landed;
    {
      const std::lock_guard lock(group_.mutex_);
      landed.swap(group_.landings_[rank_].landed);
    }
    left -= landed.size();
    for (const size_t k : landed) {
      if (all.arrived) all.arrived(k);
    }
  }

  // Writes a piece to where its peer takes it, as soon as it does; meanwhile tells of what has landed here.
  void land(const ByPieces& all, size_t i, size_t& left) {
    const Piece& piece = all.sends[i];
    if (piece.bytes == 0) return;
    const ThreadGroup::Landing& own = group_.landings_[rank_];
    ThreadGroup::Landing& there = group_.landings_[piece.peer];
    const auto takes = [&] { return there.open && there.call == own.call; };
    std::unique_lock lock(group_.mutex_);
    group_.check();
    while (!takes()) {
      group_.sleep_until(lock, [&] { return takes() || !own.landed.empty(); });
      lock.unlock();
      take(all, left);
      lock.lock();
    }
    size_t& k = there.next[rank_];
    while (k < there.pieces.size() && (there.pieces[k].peer != rank_ || there.pieces[k].bytes == 0)) ++k;
    if (k == there.pieces.size() || there.pieces[k].bytes != piece.bytes) {
      const std::string reason =
          fmt::format("{}: rank {} expects {} bytes from rank {}, which sends {}", group_.name_, piece.peer,
                      k < there.pieces.size() ? there.pieces[k].bytes : 0, rank_, piece.bytes);
      group_.stop(reason);
      internal_error("{}", reason);
    }
    const size_t landed = k++;
    std::byte* const to = there.data + there.pieces[landed].offset;
    ++there.writers;
    lock.unlock();
    std::memcpy(to, static_cast<const std::byte*>(all.send) + piece.offset, static_cast<size_t>(piece.bytes));
    count_sent(traffic_, *this, piece.peer, piece.bytes);
    lock.lock();
    --there.writers;
    there.landed.push_back(landed);
    group_.changed_.notify_all();
  }

  // Under the lock but while copying.
  void read_shown(std::unique_lock<std::mutex>& lock, void* receive, std::span<const Piece> receives) {
    ++group_.readers_;
    lock.unlock();
    try {
      std::vector<size_t> next(static_cast<size_t>(size()), 0);
      for (const Piece& piece : receives) {
        if (piece.bytes == 0) continue;
        const ThreadGroup::Shown& from = group_.shown_[piece.peer];
        size_t& k = next[piece.peer];
        while (k < from.pieces.size() && (from.pieces[k].peer != rank_ || from.pieces[k].bytes == 0)) ++k;
        HEDDLE_CHECK(k < from.pieces.size() && from.pieces[k].bytes == piece.bytes,
                     "{}: rank {} expects {} bytes from rank {}, which sends {}", group_.name_, rank_, piece.bytes,
                     piece.peer, k < from.pieces.size() ? from.pieces[k].bytes : 0);
        std::memcpy(static_cast<std::byte*>(receive) + piece.offset, from.data + from.pieces[k].offset,
                    static_cast<size_t>(piece.bytes));
        ++k;
      }
    } catch (const std::exception& error) {
      lock.lock();
      group_.end_reading();
      group_.stop(error.what());
      throw;
    }
    lock.lock();
    group_.end_reading();
  }

  ThreadGroup& group_;
  int rank_;
  Traffic traffic_;
};

class ThreadWorld : public World {
 public:
  ThreadWorld(ThreadWorlds& thread_worlds, int rank) : thread_worlds_(thread_worlds), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return thread_worlds_.size(); }
  int node_of(int rank) const override { return thread_worlds_.node_of_.at(static_cast<size_t>(rank)); }
  const std::string& host_of(int rank) const override {
    return thread_worlds_.hosts_.at(static_cast<size_t>(node_of(rank)));
  }
  std::unique_ptr<Communicator> communicator(const std::vector<int>& ranks, const std::string& name) override {
    const auto at = std::find(ranks.begin(), ranks.end(), rank_);
    HEDDLE_CHECK(at != ranks.end(), "rank {} is not in the group that it asks for ({})", rank_, name);
    return std::make_unique<ThreadCommunicator>(thread_worlds_.group(ranks, name),
                                                static_cast<int>(at - ranks.begin()));
  }
  void abort(const std::string& reason, bool input) override { thread_worlds_.abort(reason, input); }
  void set_patience(double seconds) override {
    thread_worlds_.patience_s_.store(seconds, std::memory_order_relaxed);
  }

 private:
  ThreadWorlds& thread_worlds_;
  int rank_;
};

ThreadWorlds::ThreadWorlds(std::vector<int> node_of) : node_of_(std::move(node_of)) {
  const int nodes = node_of_.empty() ? 0 : *std::max_element(node_of_.begin(), node_of_.end()) + 1;
  for (int n = 0; n < nodes; ++n) hosts_.push_back(fmt::format("node {}", n));
}

ThreadWorlds::~ThreadWorlds() = default;

std::unique_ptr<World> ThreadWorlds::world(int rank) { return std::make_unique<ThreadWorld>(*this, rank); }

ThreadGroup& ThreadWorlds::group(const std::vector<int>& ranks, const std::string& name) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<ThreadGroup>& group = groups_[{ranks, name}];
  if (!group) {
    std::vector<int> nodes;
    for (const int r : ranks) nodes.push_back(node_of_.at(static_cast<size_t>(r)));
    group = std::make_unique<ThreadGroup>(name, std::move(nodes), patience_s_);
    if (!reason_.empty()) group->abort(reason_, input_);
  }
  return *group;
}

void ThreadWorlds::abort(const std::string& reason, bool input) {
  const std::lock_guard lock(mutex_);
  if (reason_.empty()) {
    reason_ = reason;
    input_ = input;
  }
  for (auto& [key, group] : groups_) group->abort(reason_, input_);
}

void run_on_threads(int ranks, const std::function<void(World&)>& body, std::vector<int> node_of) {
  node_of.resize(static_cast<size_t>(ranks), 0);
  device::tell_cuda_driver(ranks > 1);
  // NCCL up to 2.22 lets ranks of one process read and write each other's buffers directly, among them such as only
  // their own device reaches. What the user has set stands.
  setenv("NCCL_P2P_DIRECT_DISABLE", "1", 0);
  ThreadWorlds thread_worlds(std::move(node_of));
  std::mutex mutex;
  std::exception_ptr first, first_stopped;
  const auto run = [&](int rank) {
    try {
      const std::unique_ptr<World> world = thread_worlds.world(rank);
      body(*world);
    } catch (const PeerError& error) {
      {
        const std::lock_guard lock(mutex);
        if (!first_stopped) first_stopped = std::current_exception();
      }
      thread_worlds.abort(error.reason);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      thread_worlds.abort(fmt::format("rank {}: {}", rank, error.what()),
                          dynamic_cast<const ConfigError*>(&error) != nullptr);
    }
  };
  on_threads(ranks, run);
  if (!first) first = first_stopped;
  if (first) std::rethrow_exception(first);
}

}  // namespace heddle::comm

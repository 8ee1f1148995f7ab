// Ranks as threads whose links have a stated rate, and one pair's less: what waits does so asleep.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "heddle/comm/world.h"

namespace heddle::test {

struct Links {
  double bytes_per_s = 1e9;
  int a = -1, b = -1;                     // the pair that is slow
  double times = 1;                       // by so much
  const std::atomic<bool>* on = nullptr;  // from when on; null: always

  double seconds(int from, int to, int64_t bytes) const {
    const bool slow = std::minmax(from, to) == std::minmax(a, b) && (on == nullptr || on->load());
    return static_cast<double>(bytes) / bytes_per_s * (slow ? times : 1);
  }
};

class SlowCommunicator : public comm::Communicator {
 public:
  SlowCommunicator(std::unique_ptr<comm::Communicator> inner, std::vector<int> ranks, const Links& links)
      : inner_(std::move(inner)), ranks_(std::move(ranks)), links_(links) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int node_of(int rank) const override { return inner_->node_of(rank); }
  comm::Traffic traffic() const override { return inner_->traffic(); }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  void exchange(const void* send, std::span<const comm::Piece> sends, void* receive,
                std::span<const comm::Piece> receives) override {
    double longest_s = 0;
    for (const std::span<const comm::Piece> pieces : {sends, receives}) {
      std::vector<double> with(ranks_.size(), 0);
      for (const comm::Piece& piece : pieces)
        with[static_cast<size_t>(piece.peer)] += link_s(piece.peer, piece.bytes);
      longest_s = std::max(longest_s, *std::max_element(with.begin(), with.end()));
    }
    inner_->exchange(send, sends, receive, receives);
    sleep(longest_s);
  }
  void send(const void* data, int64_t bytes, int peer) override {
    sleep(link_s(peer, bytes));
    inner_->send(data, bytes, peer);
  }
  void receive(void* data, int64_t bytes, int peer) override { inner_->receive(data, bytes, peer); }

 private:
  double link_s(int peer, int64_t bytes) const {
    if (peer == inner_->rank()) return 0;
    return links_.seconds(ranks_[static_cast<size_t>(inner_->rank())], ranks_[static_cast<size_t>(peer)], bytes);
  }
  static void sleep(double seconds) {
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  std::unique_ptr<comm::Communicator> inner_;
  std::vector<int> ranks_;
  const Links& links_;
};

class SlowWorld : public comm::World {
 public:
  SlowWorld(comm::World& world, const Links& links) : world_(world), links_(links) {}
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int node_of(int rank) const override { return world_.node_of(rank); }
  const std::string& host_of(int rank) const override { return world_.host_of(rank); }
  std::unique_ptr<comm::Communicator> communicator(const std::vector<int>& ranks,
                                                   const std::string& name) override {
    return std::make_unique<SlowCommunicator>(world_.communicator(ranks, name), ranks, links_);
  }
  void abort(const std::string& reason, bool input) override { world_.abort(reason, input); }
  void set_patience(double seconds) override { world_.set_patience(seconds); }

 private:
  comm::World& world_;
  const Links& links_;
};

}  // namespace heddle::test

// Ranks as threads whose links have a stated rate, and one pair's or one rank's less: what waits does so asleep. An
// exchange brings each peer's bytes when its link has moved them.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "heddle/base/clock.h"
#include "heddle/base/random.h"
#include "heddle/comm/calls/arrivals.h"
#include "heddle/comm/world.h"

namespace heddle::test {

struct Links {
  double bytes_per_s = 1e9;
  int a = -1, b = -1;                     // the pair that is slow; b −1: a with every other
  double times = 1;                       // by so much
  const std::atomic<bool>* on = nullptr;  // from when on; null: always
  double jitter = 0;                      // deviation of the logarithm of an exchange's time on a link

  double seconds(int from, int to, int64_t bytes) const {
    const bool named = b < 0 ? from == a || to == a : std::minmax(from, to) == std::minmax(a, b);
    const bool slow = a >= 0 && named && (on == nullptr || on->load());
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
    std::vector<double> comes_s(ranks_.size(), 0), goes_s(ranks_.size(), 0);
    for (const comm::Piece& piece : receives)
      comes_s[static_cast<size_t>(piece.peer)] += link_s(piece.peer, piece.bytes);
    for (const comm::Piece& piece : sends)
      goes_s[static_cast<size_t>(piece.peer)] += link_s(piece.peer, piece.bytes);
    std::vector<std::pair<double, int>> order;
    for (size_t p = 0; p < comes_s.size(); ++p) {
      if (comes_s[p] <= 0) continue;
      const double drawn = std::exp(links_.jitter * key_.normal(drawn_++));
      order.emplace_back(comes_s[p] * drawn, static_cast<int>(p));
    }
    std::sort(order.begin(), order.end());
    const double entered_s = now_s();
    inner_->exchange(send, sends, receive, receives);
    double passed_s = 0;
    const double began_s = now_s(), waited_s = began_s - entered_s;  // threads wait for all of them, not for peers
    for (const auto& [comes, peer] : order) {
      sleep(began_s + comes - now_s());
      if (comm::asked_arrivals != nullptr) comm::asked_arrivals->note(peer, now_s() - waited_s);
      passed_s = comes;
    }
    sleep(*std::max_element(goes_s.begin(), goes_s.end()) - passed_s);
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
  RandomKey key_ = RandomKey(1).with(static_cast<uint64_t>(inner_->rank()));
  uint64_t drawn_ = 0;
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

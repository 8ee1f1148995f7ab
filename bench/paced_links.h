// Links between the ranks of one process, of stated rates: each rank has one to the others of its node, each node
// one to the others, both with two directions. An exchange really moves its bytes, and ends, on all of its ranks at
// once, when the busiest link that it uses would have carried them; channels that use a link at one time share it,
// one behind the other.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/comm/communicator.h"

namespace heddle::bench {

using Clock = std::chrono::steady_clock;

struct LinkRates {
  double within_bytes_per_s = 0, across_bytes_per_s = 0;  // of a rank; of a node
  double within_latency_s = 0, across_latency_s = 0;
};

/// The links, when each is free again, each way.
class PacedLinks {
 public:
  PacedLinks(LinkRates rates, std::vector<int> node_of)
      : rates(rates), node_of(std::move(node_of)), free_(2 * this->node_of.size() + 2 * this->node_of.size()) {}

  struct Load {
    std::vector<double> within_out, within_in, across_out, across_in;  // by rank, by rank, by node, by node
    explicit Load(size_t ranks) : within_out(ranks), within_in(ranks), across_out(ranks), across_in(ranks) {}
  };
  /// When bytes are across that set out now.
  Clock::time_point carry(const Load& load) {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    Clock::time_point end = now;
    double latency_s = 0;
    const std::array<const std::vector<double>*, 4> ways{&load.within_out, &load.within_in, &load.across_out,
                                                         &load.across_in};
    for (size_t way = 0; way < ways.size(); ++way) {
      const double rate = way < 2 ? rates.within_bytes_per_s : rates.across_bytes_per_s;
      for (size_t i = 0; i < ways[way]->size(); ++i) {
        const double bytes = (*ways[way])[i];
        if (bytes <= 0) continue;
        Clock::time_point& free = free_[way * node_of.size() + i];
        free = std::max(now, free) + seconds(bytes / rate);
        end = std::max(end, free);
        latency_s = std::max(latency_s, way < 2 ? rates.within_latency_s : rates.across_latency_s);
      }
    }
    return end + seconds(latency_s);
  }

  const LinkRates rates;
  const std::vector<int> node_of;

 private:
  static Clock::duration seconds(double s) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  }
  std::mutex mutex_;
  std::vector<Clock::time_point> free_;  // way by way
};

/// A channel of all ranks over such links.
class PacedChannel {
 public:
  explicit PacedChannel(PacedLinks& links) : links_(links), load_(links.node_of.size()) {}

  /// Every rank says what it sends; the last to do so sends it all on its way. Returns when that has arrived.
  Clock::time_point join(int rank, std::span<const comm::Piece> sends) {
    std::unique_lock lock(mutex_);
    for (const comm::Piece& piece : sends) {
      if (piece.peer == rank) continue;
      const auto from = static_cast<size_t>(rank), to = static_cast<size_t>(piece.peer);
      const auto from_node = static_cast<size_t>(links_.node_of[from]),
                 to_node = static_cast<size_t>(links_.node_of[to]);
      const auto bytes = static_cast<double>(piece.bytes);
      sent_bytes_ += bytes;
      (from_node == to_node ? load_.within_out[from] : load_.across_out[from_node]) += bytes;
      (from_node == to_node ? load_.within_in[to] : load_.across_in[to_node]) += bytes;
    }
    const int64_t round = round_;
    if (++joined_ == links_.node_of.size()) {
      end_ = links_.carry(load_);
      load_ = PacedLinks::Load(links_.node_of.size());
      joined_ = 0;
      ++round_;
      all_.notify_all();
    } else {
      all_.wait(lock, [&] { return round_ != round; });
    }
    return end_;
  }
  /// Of all ranks since this was last asked, between steps.
  double take_sent_bytes() {
    const std::lock_guard lock(mutex_);
    return std::exchange(sent_bytes_, 0.0);
  }

 private:
  PacedLinks& links_;
  std::mutex mutex_;
  std::condition_variable all_;
  PacedLinks::Load load_;
  size_t joined_ = 0;
  int64_t round_ = 0;
  Clock::time_point end_;
  double sent_bytes_ = 0;
};

/// One rank's end of such a channel; bytes go through `real`.
class PacedCommunicator : public comm::Communicator {
 public:
  PacedCommunicator(comm::Communicator& real, PacedChannel& channel) : real_(real), channel_(channel) {}
  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  int node_of(int rank) const override { return real_.node_of(rank); }
  void exchange(const void* send, std::span<const comm::Piece> sends, void* receive,
                std::span<const comm::Piece> receives) override {
    const Clock::time_point end = channel_.join(rank(), sends);
    real_.exchange(send, sends, receive, receives);
    std::this_thread::sleep_until(end);
  }
  void send(const void*, int64_t, int) override { internal_error("no such message goes over a paced channel"); }
  void receive(void*, int64_t, int) override { internal_error("no such message goes over a paced channel"); }
  comm::Traffic traffic() const override { return real_.traffic(); }
  void abort(const std::string& reason) override { real_.abort(reason); }

 private:
  comm::Communicator& real_;
  PacedChannel& channel_;
};

}  // namespace heddle::bench

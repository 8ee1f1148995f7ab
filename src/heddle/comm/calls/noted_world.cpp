#include "heddle/comm/calls/noted_world.h"

#include <algorithm>
#include <utility>

#include "heddle/base/clock.h"
#include "heddle/comm/calls/arrivals.h"

namespace heddle::comm {

namespace {

/// Asks the transport for the arrivals of this thread's exchange while it lasts.
class Asked {
 public:
  explicit Asked(size_t ranks) : arrivals_{std::vector<double>(ranks, 0)} { asked_arrivals = &arrivals_; }
  ~Asked() { asked_arrivals = nullptr; }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  const Arrivals& arrivals() const { return arrivals_; }

 private:
  Arrivals arrivals_;
};

/// A call that failed stays open in the page: there its rank stood.
class Noted {
 public:
  Noted(CallLog& log, int channel, CallKind kind, int64_t bytes, int peer = -1)
      : log_(log), number_(log.begin(channel, kind, peer, bytes)) {}
  void left() { log_.end(number_); }

 private:
  CallLog& log_;
  uint64_t number_;
};

class NotedCommunicator : public Communicator {
 public:
  NotedCommunicator(std::unique_ptr<Communicator> inner, CallLog& log, const std::vector<int>& ranks,
                    const std::string& name)
      : inner_(std::move(inner)),
        log_(log),
        ranks_(ranks),
        channel_(log.channel(name, ranks)),
        link_(log.links().channel(name, ranks)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int node_of(int rank) const override { return inner_->node_of(rank); }
  Traffic traffic() const override { return inner_->traffic(); }
  void run_on(void* stream) override { inner_->run_on(stream); }
  void abort(const std::string& reason) override { inner_->abort(reason); }

  void exchange(const void* send, std::span<const Piece> sends, void* receive,
                std::span<const Piece> receives) override {
    Noted noted(log_, channel_, CallKind::exchange, with_others(sends) + with_others(receives));
    const uint32_t call = log_.links().count(link_);
    if (!log_.links().is_on()) {
      inner_->exchange(send, sends, receive, receives);
    } else {
      const double began_s = now_s();
      const Asked asked(ranks_.size());
      inner_->exchange(send, sends, receive, receives);
      note_links(asked.arrivals(), call, began_s, receives);
    }
    noted.left();
  }
  void exchange_by_pieces(const ByPieces& all) override {
    Noted noted(log_, channel_, CallKind::exchange, with_others(all.sends) + with_others(all.receives));
    inner_->exchange_by_pieces(all);
    noted.left();
  }
  void send(const void* data, int64_t bytes, int peer) override {
    Noted noted(log_, channel_, CallKind::send, bytes, of(peer));
    inner_->send(data, bytes, peer);
    noted.left();
  }
  void receive(void* data, int64_t bytes, int peer) override {
    Noted noted(log_, channel_, CallKind::receive, bytes, of(peer));
    inner_->receive(data, bytes, peer);
    noted.left();
  }

 private:
  void note_links(const Arrivals& arrivals, uint32_t call, double began_s, std::span<const Piece> receives) {
    std::vector<int64_t> bytes(ranks_.size(), 0);
    for (const Piece& piece : receives) bytes[static_cast<size_t>(piece.peer)] += piece.bytes;
    std::vector<double> seconds(ranks_.size(), 0);
    for (size_t p = 0; p < seconds.size(); ++p) {
      const bool known = static_cast<int>(p) != inner_->rank() && arrivals.come_s[p] > 0;
      if (known) seconds[p] = std::max(arrivals.come_s[p] - began_s, 1e-9);
    }
    log_.links().add(link_, call, seconds, bytes);
  }
  int64_t with_others(std::span<const Piece> pieces) const {
    int64_t bytes = 0;
    for (const Piece& piece : pieces) bytes += piece.peer == inner_->rank() ? 0 : piece.bytes;
    return bytes;
  }
  int of(int peer) const { return peer >= 0 && peer < static_cast<int>(ranks_.size()) ? ranks_[peer] : -1; }
  std::unique_ptr<Communicator> inner_;
  CallLog& log_;
  std::vector<int> ranks_;
  int channel_, link_;
};

}  // namespace

std::unique_ptr<Communicator> NotedWorld::communicator(const std::vector<int>& ranks, const std::string& name) {
  return std::make_unique<NotedCommunicator>(world_.communicator(ranks, name), log_, ranks, name);
}

}  // namespace heddle::comm

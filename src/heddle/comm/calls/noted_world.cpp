#include "heddle/comm/calls/noted_world.h"

#include <utility>

namespace heddle::comm {

namespace {

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
      : inner_(std::move(inner)), log_(log), ranks_(ranks), channel_(log.channel(name, ranks)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int node_of(int rank) const override { return inner_->node_of(rank); }
  Traffic traffic() const override { return inner_->traffic(); }
  void run_on(void* stream) override { inner_->run_on(stream); }
  void abort(const std::string& reason) override { inner_->abort(reason); }

  void exchange(const void* send, std::span<const Piece> sends, void* receive,
                std::span<const Piece> receives) override {
    Noted noted(log_, channel_, CallKind::exchange, with_others(sends) + with_others(receives));
    inner_->exchange(send, sends, receive, receives);
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
  int64_t with_others(std::span<const Piece> pieces) const {
    int64_t bytes = 0;
    for (const Piece& piece : pieces) bytes += piece.peer == inner_->rank() ? 0 : piece.bytes;
    return bytes;
  }
  int of(int peer) const { return peer >= 0 && peer < static_cast<int>(ranks_.size()) ? ranks_[peer] : -1; }
  std::unique_ptr<Communicator> inner_;
  CallLog& log_;
  std::vector<int> ranks_;
  int channel_;
};

}  // namespace

std::unique_ptr<Communicator> NotedWorld::communicator(const std::vector<int>& ranks, const std::string& name) {
  return std::make_unique<NotedCommunicator>(world_.communicator(ranks, name), log_, ranks, name);
}

}  // namespace heddle::comm

#include "heddle/comm/engine/engine_world.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <optional>

#include "heddle/base/failure.h"

namespace heddle::comm {

namespace {

/// What a rank shows a peer of its bytes: where the list of pieces lies.
struct Shown {
  uint64_t lease = 0;
  const CopyRun* pieces = nullptr;  // `from` and `bytes` of each, in order
  int64_t count = 0, bytes = 0;
};
/// A message that was left with the process' worker.
struct Left {
  uint64_t number = 0;
  int64_t bytes = 0;
};

}  // namespace

class EngineCommunicator : public Communicator {
 public:
  EngineCommunicator(EngineWorld& world, std::unique_ptr<Communicator> usual, std::unique_ptr<Communicator> letters,
                     const std::vector<int>& ranks, std::string name)
      : world_(world), worker_(*world.worker_), usual_(std::move(usual)), letters_(std::move(letters)),
        name_(std::move(name)) {
    for (const int r : ranks) peers_.push_back(world.reach_.peers.at(static_cast<size_t>(r)));
  }
  int rank() const override { return usual_->rank(); }
  int size() const override { return usual_->size(); }
  int node_of(int rank) const override { return usual_->node_of(rank); }
  Traffic traffic() const override { return traffic_; }
  void abort(const std::string& reason) override {
    usual_->abort(reason);
    letters_->abort(reason);
  }

  void exchange(const void* send, std::span<const Piece> sends, void* receive,
                std::span<const Piece> receives) override {
    const auto of_peers = [&](std::span<const Piece> pieces) {
      std::vector<int64_t> bytes(peers_.size(), 0);
      for (const Piece& piece : pieces) bytes.at(static_cast<size_t>(piece.peer)) += piece.bytes;
      return bytes;
    };
    const std::vector<int64_t> out = of_peers(sends), in = of_peers(receives);
    for (const Piece& piece : sends) count_sent(traffic_, *this, piece.peer, piece.bytes);
    const int n = size(), me = rank();
    bool moves = false;
    for (int peer = 0; peer < n; ++peer) {
      const int64_t bytes = out[static_cast<size_t>(peer)];
      if (peer != me && bytes > 0) count(peer, bytes);
      moves = moves || by_engine(peer, bytes) || by_engine(peer, in[static_cast<size_t>(peer)]);
    }
    if (!moves) return usual_->exchange(send, sends, receive, receives);
    std::vector<Piece> usual_sends, usual_receives;
    for (const Piece& piece : sends) {
      if (!by_engine(piece.peer, out[static_cast<size_t>(piece.peer)])) usual_sends.push_back(piece);
    }
    for (const Piece& piece : receives) {
      if (!by_engine(piece.peer, in[static_cast<size_t>(piece.peer)])) usual_receives.push_back(piece);
    }
    std::vector<std::vector<CopyRun>> shown(static_cast<size_t>(n));
    for (const Piece& piece : sends) {
      if (piece.bytes == 0 || !by_engine(piece.peer, out[static_cast<size_t>(piece.peer)])) continue;
      shown[static_cast<size_t>(piece.peer)].push_back(
          {nullptr, static_cast<const std::byte*>(send) + piece.offset, piece.bytes});
    }
    const CopyWorker::Lease lease(worker_);
    for (int i = 1; i < n; ++i) {
      const int peer = (me + i) % n;
      const auto p = static_cast<size_t>(peer);
      if (shown[p].empty()) continue;
      const Shown letter{lease.number(), shown[p].data(), std::ssize(shown[p]), out[p]};
      letters_->send(&letter, sizeof letter, peer);
    }
    std::list<CopyWorker::Job> jobs;
    for (int i = 0; i < n; ++i) {  // beginning with this rank itself
      const int peer = (me + i) % n;
      const auto p = static_cast<size_t>(peer);
      if (!by_engine(peer, in[p])) continue;
      Shown letter{lease.number(), shown[p].data(), std::ssize(shown[p]), out[p]};
      if (peer != me) letters_->receive(&letter, sizeof letter, peer);
      jobs.emplace_back(worker_, matched(letter, peer, receive, receives, in[p]), peers_[p].process,
                        peers_[p].process == 0 ? letter.lease : 0);
    }
    usual_->exchange(send, usual_sends, receive, usual_receives);
    const std::byte taken{};
    auto job = jobs.begin();
    for (int i = 0; i < n; ++i) {
      const int peer = (me + i) % n;
      if (!by_engine(peer, in[static_cast<size_t>(peer)])) continue;
      awaited(peer, [&] { (job++)->wait(); });
      if (peer != me) letters_->send(&taken, 1, peer);
    }
    for (int peer = 0; peer < n; ++peer) {
      if (peer == me || !by_engine(peer, out[static_cast<size_t>(peer)])) continue;
      std::byte told{};
      letters_->receive(&told, 1, peer);
    }
  }

  void send(const void* data, int64_t bytes, int peer) override {
    count_sent(traffic_, *this, peer, bytes);
    if (!leaves(peer, bytes)) {
      const bool is_short = reaches(peer) && bytes < world_.least_bytes_;
      if (peer != rank() && bytes > 0) (is_short ? world_.short_ : world_.far_).add(bytes);
      return usual_->send(data, bytes, peer);
    }
    auto letter = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
    CopyWorker::Job(worker_, {{letter.get(), static_cast<const std::byte*>(data), bytes}}).wait();
    if (peer != rank()) world_.moved_.add(bytes);
    const Left left{worker_.leave(std::move(letter)), bytes};
    usual_->send(&left, sizeof left, peer);
  }

  void receive(void* data, int64_t bytes, int peer) override {
    if (!leaves(peer, bytes)) return usual_->receive(data, bytes, peer);
    Left left;
    usual_->receive(&left, sizeof left, peer);
    const std::unique_ptr<std::byte[]> letter = worker_.take(left.number);
    HEDDLE_CHECK(left.bytes == bytes, "{}: rank {} expects {} bytes from rank {}, which sends {}", name_, rank(),
                 bytes, peer, left.bytes);
    CopyWorker::Job(worker_, {{static_cast<std::byte*>(data), letter.get(), bytes}}).wait();
  }

 private:
  bool reaches(int peer) const { return peers_[static_cast<size_t>(peer)].by != Reach::By::transport; }
  bool by_engine(int peer, int64_t bytes) const { return bytes > 0 && bytes >= world_.least_bytes_ && reaches(peer); }
  bool leaves(int peer, int64_t bytes) const {
    return by_engine(peer, bytes) && peers_[static_cast<size_t>(peer)].by == Reach::By::memory;
  }
  void count(int peer, int64_t bytes) {
    (by_engine(peer, bytes) ? world_.moved_ : reaches(peer) ? world_.short_ : world_.far_).add(bytes);
  }

  // Where what a peer shows is to go, piece by piece.
  std::vector<CopyRun> matched(const Shown& letter, int peer, void* receive, std::span<const Piece> receives,
                               int64_t bytes) {
    const auto p = static_cast<size_t>(peer);
    const auto differ = [&](int64_t expected, int64_t sent) {
      const std::string why = fmt::format("{}: rank {} expects {} bytes from rank {}, which sends {}", name_, rank(),
                                          expected, peer, sent);
      abort(why);
      internal_error("{}", why);
    };
    std::vector<Piece> own;
    for (const Piece& piece : receives) {
      if (piece.peer == peer && piece.bytes > 0) own.push_back(piece);
    }
    if (letter.bytes != bytes || letter.count != std::ssize(own)) differ(bytes, letter.bytes);
    std::vector<CopyRun> runs(own.size());
    awaited(peer, [&] {
      worker_.read(runs.data(), letter.pieces, std::ssize(runs) * static_cast<int64_t>(sizeof(CopyRun)),
                   peers_[p].process, letter.lease);
    });
    for (size_t k = 0; k < own.size(); ++k) {
      if (runs[k].bytes != own[k].bytes) differ(own[k].bytes, runs[k].bytes);
      runs[k].to = static_cast<std::byte*>(receive) + own[k].offset;
    }
    return runs;
  }

  // A peer whose memory is gone has left, or is dead, and the world is about to fail: why, the world knows better.
  template <class Wait>
  void awaited(int peer, const Wait& wait) {
    try {
      wait();
    } catch (const PeerError&) {
      std::byte never{};
      letters_->receive(&never, 1, peer);
      throw;
    }
  }

  EngineWorld& world_;
  CopyWorker& worker_;
  std::unique_ptr<Communicator> usual_, letters_;
  std::vector<Reach::Peer> peers_;  // by rank of the group
  std::string name_;
  Traffic traffic_;
};

EngineWorld::EngineWorld(World& world, std::shared_ptr<CopyWorker> worker, int64_t least_bytes, Reach reach)
    : world_(world), worker_(std::move(worker)), least_bytes_(std::max<int64_t>(1, least_bytes)),
      reach_(std::move(reach)) {}

std::unique_ptr<Communicator> EngineWorld::communicator(const std::vector<int>& ranks, const std::string& name) {
  auto usual = world_.communicator(ranks, name);
  return std::make_unique<EngineCommunicator>(*this, std::move(usual), world_.communicator(ranks, name + ".engine"),
                                              ranks, name);
}

EngineTally EngineWorld::tally() const {
  return {moved_.messages, moved_.bytes, short_.messages, short_.bytes, far_.messages, far_.bytes};
}

}  // namespace heddle::comm

#include "heddle/comm/engine/engine_world.h"

#include <algorithm>
#include <cstring>
#include <list>

#include "heddle/base/failure.h"

namespace heddle::comm {

namespace {

/// The bytes that a rank shows a peer: where the list of pieces lies.
struct ShownPieces {
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
      : world_(world),
        worker_(*world.worker_),
        usual_(std::move(usual)),
        letters_(std::move(letters)),
        name_(std::move(name)) {
    for (const int r : ranks) {
      peers_.push_back(world.reach_.peers.at(static_cast<size_t>(r)));
      far_ = far_ || world.node_of(r) != world.node_of(ranks[0]);
    }
  }
  int rank() const override { return usual_->rank(); }
  int size() const override { return usual_->size(); }
  int node_of(int rank) const override { return usual_->node_of(rank); }
  Traffic traffic() const override { return traffic_; }
  void abort(const std::string& reason) override {
    usual_->abort(reason);
    letters_->abort(reason);
  }

  // A letter and its answer for each piece would cost more than the piece. As without the engine: between threads
  // who has made one puts it in its place, between processes MPI's thread moves it, which is on the engine's core.
  void exchange_by_pieces(const ByPieces& all) override {
    for (const Piece& piece : all.sends) {
      count_sent(traffic_, *this, piece.peer, piece.bytes);
      if (piece.peer != rank() && piece.bytes > 0) world_.counts_.farther.add(piece.bytes);
    }
    usual_->exchange_by_pieces(all);
  }

  void exchange(const void* send, std::span<const Piece> sends, void* receive,
                std::span<const Piece> receives) override {
    const int n = size(), me = rank();
    const std::vector<std::vector<CopyRun>> out = by_peer(sends, nullptr, static_cast<const std::byte*>(send));
    const std::vector<std::vector<CopyRun>> in = by_peer(receives, static_cast<std::byte*>(receive), nullptr);
    const auto at = [](const std::vector<std::vector<CopyRun>>& of, int peer) -> const std::vector<CopyRun>& {
      return of[peer];
    };
    for (const Piece& piece : sends) count_sent(traffic_, *this, piece.peer, piece.bytes);
    const CopyWorker::Lease lease(worker_);
    for (int i = 1; i < n; ++i) {  // beginning with the next rank, so that not all send to one
      const int peer = (me + i) % n;
      const int64_t bytes = bytes_of(at(out, peer));
      if (bytes == 0) continue;
      count(peer, bytes);
      if (by_engine(peer, bytes)) {
        const ShownPieces letter{lease.number(), at(out, peer).data(), std::ssize(at(out, peer)), bytes};
        letters_->send(&letter, sizeof letter, peer);
      } else if (reaches(peer)) {
        std::vector<std::byte> letter;
        for (const CopyRun& run : at(out, peer)) letter.insert(letter.end(), run.from, run.from + run.bytes);
        letters_->send(letter.data(), bytes, peer);
      }
    }
    std::list<CopyWorker::Job> jobs;
    for (int i = 0; i < n; ++i) {  // beginning with this rank itself
      const int peer = (me + i) % n;
      const auto p = static_cast<size_t>(peer);
      const int64_t bytes = bytes_of(in[p]);
      if (peer == me) own_pieces(out[p], in[p], jobs, lease);
      if (peer == me || !by_engine(peer, bytes)) continue;
      ShownPieces letter;
      letters_->receive(&letter, sizeof letter, peer);
      jobs.emplace_back(worker_, matched(letter, peer, in[p]), peers_[p].process,
                        peers_[p].process == 0 ? letter.lease : 0);
    }
    for (int i = 1; i < n; ++i) {
      const int peer = (me + i) % n;
      const int64_t bytes = bytes_of(at(in, peer));
      if (bytes == 0 || by_engine(peer, bytes) || !reaches(peer)) continue;
      std::vector<std::byte> letter(static_cast<size_t>(bytes));
      letters_->receive(letter.data(), bytes, peer);
      const std::byte* from = letter.data();
      for (const CopyRun& run : at(in, peer)) {
        std::memcpy(run.to, from, static_cast<size_t>(run.bytes));
        from += run.bytes;
      }
    }
    if (far_) exchange_far(send, sends, receive, receives);
    const std::byte taken{};
    for (int i = 0; i < n; ++i) {
      const int peer = (me + i) % n;
      if (!by_engine(peer, bytes_of(at(in, peer)))) continue;
      awaited(peer, [&] { jobs.front().wait(); });
      jobs.pop_front();
      if (peer != me) letters_->send(&taken, 1, peer);
    }
    for (int peer = 0; peer < n; ++peer) {
      if (peer == me || !by_engine(peer, bytes_of(at(out, peer)))) continue;
      std::byte told{};
      letters_->receive(&told, 1, peer);
    }
  }

  void send(const void* data, int64_t bytes, int peer) override {
    count_sent(traffic_, *this, peer, bytes);
    if (!leaves(peer, bytes)) {
      const bool is_short = reaches(peer) && bytes < world_.least_bytes_;
      if (peer != rank() && bytes > 0) (is_short ? world_.counts_.shorter : world_.counts_.farther).add(bytes);
      return usual_->send(data, bytes, peer);
    }
    auto letter = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
    CopyWorker::Job(worker_, {{letter.get(), static_cast<const std::byte*>(data), bytes}}).wait();
    if (peer != rank()) world_.counts_.moved.add(bytes);
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
  bool reaches(int peer) const { return peers_[peer].by != Reach::By::transport; }
  bool by_engine(int peer, int64_t bytes) const {
    return bytes > 0 && bytes >= world_.least_bytes_ && reaches(peer);
  }
  bool leaves(int peer, int64_t bytes) const {
    return by_engine(peer, bytes) && peers_[peer].by == Reach::By::memory;
  }
  void count(int peer, int64_t bytes) {
    EngineCounts& counts = world_.counts_;
    (by_engine(peer, bytes) ? counts.moved : reaches(peer) ? counts.shorter : counts.farther).add(bytes);
  }

  std::vector<std::vector<CopyRun>> by_peer(std::span<const Piece> pieces, std::byte* to,
                                            const std::byte* from) const {
    std::vector<std::vector<CopyRun>> runs(peers_.size());
    for (const Piece& piece : pieces) {
      if (piece.bytes == 0) continue;
      runs.at(static_cast<size_t>(piece.peer))
          .push_back({to == nullptr ? nullptr : to + piece.offset, from == nullptr ? nullptr : from + piece.offset,
                      piece.bytes});
    }
    return runs;
  }
  static int64_t bytes_of(const std::vector<CopyRun>& runs) {
    int64_t bytes = 0;
    for (const CopyRun& run : runs) bytes += run.bytes;
    return bytes;
  }

  [[noreturn]] void differ(int64_t expected, int peer, int64_t sent) {
    const std::string why = fmt::format("{}: rank {} expects {} bytes from rank {}, which sends {}", name_, rank(),
                                        expected, peer, sent);
    abort(why);
    internal_error("{}", why);
  }
  // The sent pieces joined to where they go, piece by piece.
  std::vector<CopyRun> joined(std::vector<CopyRun> sent, const std::vector<CopyRun>& places, int peer) {
    if (sent.size() != places.size()) differ(bytes_of(places), peer, bytes_of(sent));
    for (size_t k = 0; k < sent.size(); ++k) {
      if (sent[k].bytes != places[k].bytes) differ(places[k].bytes, peer, sent[k].bytes);
      sent[k].to = places[k].to;
    }
    return sent;
  }
  // The sent pieces that a peer shows, joined to their places.
  std::vector<CopyRun> matched(const ShownPieces& letter, int peer, const std::vector<CopyRun>& places) {
    const int64_t bytes = bytes_of(places);
    if (letter.bytes != bytes || letter.count != std::ssize(places)) differ(bytes, peer, letter.bytes);
    std::vector<CopyRun> sent(places.size());
    awaited(peer, [&] {
      worker_.read(sent.data(), letter.pieces, std::ssize(sent) * static_cast<int64_t>(sizeof(CopyRun)),
                   peers_[peer].process, letter.lease);
    });
    return joined(std::move(sent), places, peer);
  }
  void own_pieces(const std::vector<CopyRun>& out, const std::vector<CopyRun>& in, std::list<CopyWorker::Job>& jobs,
                  const CopyWorker::Lease& lease) {
    std::vector<CopyRun> runs = joined(out, in, rank());
    std::erase_if(runs, [](const CopyRun& run) { return run.to == run.from; });
    if (by_engine(rank(), bytes_of(in))) {
      jobs.emplace_back(worker_, std::move(runs), 0, lease.number());
    } else {
      for (const CopyRun& run : runs) std::memcpy(run.to, run.from, static_cast<size_t>(run.bytes));
    }
  }
  void exchange_far(const void* send, std::span<const Piece> sends, void* receive,
                    std::span<const Piece> receives) {
    const auto far = [&](std::span<const Piece> pieces) {
      std::vector<Piece> kept;
      for (const Piece& piece : pieces) {
        if (!reaches(piece.peer)) kept.push_back(piece);
      }
      return kept;
    };
    usual_->exchange(send, far(sends), receive, far(receives));
  }

  // A peer whose memory is gone has left, or is dead, and the world is about to fail: why, the world knows better.
  // Before its end the peer may have sent the letter that it has taken what this rank shows.
  template <class Wait>
  void awaited(int peer, const Wait& wait) {
    try {
      wait();
    } catch (const PeerError&) {
      for (std::byte taken{};;) letters_->receive(&taken, 1, peer);
    }
  }

  EngineWorld& world_;
  CopyWorker& worker_;
  std::unique_ptr<Communicator> usual_, letters_;
  std::vector<Reach::Peer> peers_;  // by rank of the group
  bool far_ = false;                // the group spans hosts, as all its ranks know
  std::string name_;
  Traffic traffic_;
};

EngineWorld::EngineWorld(World& world, std::shared_ptr<CopyWorker> worker, int64_t least_bytes, Reach reach)
    : world_(world),
      worker_(std::move(worker)),
      least_bytes_(std::max<int64_t>(1, least_bytes)),
      reach_(std::move(reach)) {}

std::unique_ptr<Communicator> EngineWorld::communicator(const std::vector<int>& ranks, const std::string& name) {
  auto usual = world_.communicator(ranks, name);
  return std::make_unique<EngineCommunicator>(*this, std::move(usual), world_.communicator(ranks, name + ".engine"),
                                              ranks, name);
}

}  // namespace heddle::comm

// The world over MPI. Each peer gets one message per exchange. Pieces that lie one after the other travel from and
// to where they are. The calling thread packs others into a buffer that the communicator keeps.
#include "heddle/comm/mpi_world.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/comm/calls/arrivals.h"
#include "heddle/comm/mpi/pieces.h"
#include "heddle/comm/mpi/progress.h"
#include "heddle/device/device.h"

namespace heddle::comm {

namespace {

using mpi::Call;
using mpi::Channel;
using mpi::Kind;
using mpi::NodeWindow;
using mpi::Progress;

/// The pieces of one side of an exchange, by peer.
class Side {
 public:
  Side(std::span<const Piece> pieces, int ranks, int self, const Channel& channel)
      : pieces_(pieces), self_(self), peers_(static_cast<size_t>(ranks)) {
    for (const Piece& piece : pieces) {
      HEDDLE_CHECK(piece.peer >= 0 && piece.peer < ranks && piece.bytes >= 0,
                   "{}: a piece of {} bytes for rank {} of {}", channel.name, piece.bytes, piece.peer, ranks);
      if (piece.bytes == 0) continue;
      Peer& peer = peers_[piece.peer];
      if (peer.bytes == 0) peer.first = piece.offset;
      peer.runs += peer.bytes == 0 || piece.offset != peer.end;
      peer.end = piece.offset + piece.bytes;
      peer.bytes += piece.bytes;
    }
    for (int p = 0; p < ranks; ++p) {
      Peer& peer = peers_[p];
      if (p == self || peer.runs < 2) continue;
      peer.staged = staged_bytes_;
      staged_bytes_ += (peer.bytes + 63) / 64 * 64;
    }
  }

  int64_t staged_bytes() const { return staged_bytes_; }
  int64_t bytes(int p) const { return peers_[p].bytes; }

  /// The beginning of a peer's message.
  std::byte* at(int p, std::byte* base, std::byte* staging) const {
    const Peer& peer = peers_[p];
    return peer.staged >= 0 ? staging + peer.staged : base + peer.first;
  }

  /// Copies every staged piece between `base` and `staging`.
  template <class Copy>
  void listing(Copy copy) const {
    if (staged_bytes_ == 0) return;
    std::vector<int64_t> next;
    for (const Peer& peer : peers_) next.push_back(peer.staged);
    for (const Piece& piece : pieces_) {
      int64_t& at = next[piece.peer];
      if (piece.bytes == 0 || at < 0) continue;
      copy(piece.offset, at, static_cast<size_t>(piece.bytes));
      at += piece.bytes;
    }
  }

 private:
  struct Peer {
    int64_t bytes = 0, runs = 0, first = 0, end = 0, staged = -1;
  };
  std::span<const Piece> pieces_;
  int self_;
  std::vector<Peer> peers_;
  int64_t staged_bytes_ = 0;
};

/// Memory that only grows, and isn't cleared.
class Staging {
 public:
  std::byte* of(int64_t bytes) {
    if (bytes > bytes_) {
      data_.reset();
      data_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
      bytes_ = bytes;
    }
    return data_.get();
  }

 private:
  std::unique_ptr<std::byte[]> data_;
  int64_t bytes_ = 0;
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(Progress& progress, Channel& channel)
      : progress_(progress),
        channel_(channel),
        rank_(static_cast<int>(std::find(channel.ranks.begin(), channel.ranks.end(), progress.rank()) -
                               channel.ranks.begin())) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(channel_.ranks.size()); }
  int node_of(int rank) const override { return progress_.node_of(channel_.ranks.at(static_cast<size_t>(rank))); }
  Traffic traffic() const override { return traffic_; }

  void exchange(const void* send, std::span<const Piece> sends, void* receive,
                std::span<const Piece> receives) override {
    // MPI takes what it sends as const too; Message points at either side.
    auto* from = static_cast<std::byte*>(const_cast<void*>(send));
    auto* to = static_cast<std::byte*>(receive);
    const Side out(sends, size(), rank_, channel_), in(receives, size(), rank_, channel_);
    std::byte* const packed = send_staging_.of(out.staged_bytes());
    std::byte* const unpacked = receive_staging_.of(in.staged_bytes());
    out.listing([&](int64_t at, int64_t staged, size_t bytes) { std::memcpy(packed + staged, from + at, bytes); });
    const auto call = std::make_shared<Call>(channel_, "exchange");
    const uint32_t count = channel_.exchanges++;
    for (int i = 1; i < size(); ++i) {  // beginning with the next rank, so that not all send to one
      const int peer = (rank_ + i) % size();
      if (in.bytes(peer) > 0) {
        call->messages.push_back({false, Kind::exchange, peer, count, in.at(peer, to, unpacked), in.bytes(peer)});
      }
      if (out.bytes(peer) > 0) {
        call->messages.push_back({true, Kind::exchange, peer, count, out.at(peer, from, packed), out.bytes(peer)});
        count_sent(traffic_, *this, peer, out.bytes(peer));
      }
    }
    const auto copy_own = [&] {
      match_own(sends, receives,
                [&](int64_t at, int64_t of, size_t bytes) { std::memcpy(to + at, from + of, bytes); });
    };
    match_own(sends, receives,
              [](int64_t, int64_t, size_t) {});  // what is wrong shows before anything is under way
    if (call->messages.empty()) {
      progress_.check();
      return copy_own();
    }
    progress_.submit(call);
    copy_own();
    call->wait();
    if (Arrivals* const arrivals = asked_arrivals) {
      for (const mpi::Message& message : call->messages) {
        if (!message.out) arrivals->note(message.peer, message.finished_s);
      }
    }
    in.listing([&](int64_t at, int64_t staged, size_t bytes) { std::memcpy(to + at, unpacked + staged, bytes); });
  }

  void exchange_by_pieces(const ByPieces& all) override {
    if (!window_) window_ = open_window(all.receives);
    mpi::exchange_by_pieces(progress_, channel_, rank_, *window_, all,
                            [&](int peer, int64_t bytes) { count_sent(traffic_, *this, peer, bytes); });
  }

  void send(const void* data, int64_t bytes, int peer) override {
    check_peer(bytes, peer);
    const auto* from = static_cast<const std::byte*>(data);
    const auto call = std::make_shared<Call>(channel_, "send");
    call->awaited = false;
    call->letter = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
    if (bytes > 0) std::memcpy(call->letter.get(), from, static_cast<size_t>(bytes));
    call->messages.push_back({true, Kind::letter, peer, channel_.sent_letters[peer]++, call->letter.get(), bytes});
    count_sent(traffic_, *this, peer, bytes);
    progress_.submit(call);
  }

  void receive(void* data, int64_t bytes, int peer) override {
    check_peer(bytes, peer);
    const auto call = std::make_shared<Call>(channel_, "receive");
    call->messages.push_back(
        {false, Kind::letter, peer, channel_.received_letters[peer]++, static_cast<std::byte*>(data), bytes});
    progress_.submit(call);
    call->wait();
  }

  /// Ends the whole world: messages under way can't be taken back from MPI.
  void abort(const std::string& reason) override { progress_.abort(reason); }

 private:
  void check_peer(int64_t bytes, int peer) const {
    HEDDLE_CHECK(peer >= 0 && peer < size() && bytes >= 0, "{}: {} bytes with rank {} of {}", channel_.name, bytes,
                 peer, size());
  }

  /// As large as what comes from one rank of this node in the first exchange.
  std::unique_ptr<NodeWindow> open_window(std::span<const Piece> receives) {
    std::vector<int> near;
    for (int r = 0; r < size(); ++r) {
      if (r != rank_ && progress_.shares_window(channel_.ranks[r])) near.push_back(r);
    }
    std::vector<int64_t> from(static_cast<size_t>(size()), 1);
    for (const Piece& piece : receives) {
      check_peer(piece.bytes, piece.peer);
      if (piece.peer != rank_) from[piece.peer] += piece.bytes;
    }
    return std::make_unique<NodeWindow>(*this, near, *std::max_element(from.begin(), from.end()));
  }

  /// Calls copy(offset to, offset from, bytes) for each piece that this rank has for itself.
  template <class Copy>
  void match_own(std::span<const Piece> sends, std::span<const Piece> receives, Copy copy) const {
    size_t k = 0;
    const auto own = [&](const Piece& piece) { return piece.peer == rank_ && piece.bytes > 0; };
    for (const Piece& piece : receives) {
      if (!own(piece)) continue;
      while (k < sends.size() && !own(sends[k])) ++k;
      HEDDLE_CHECK(k < sends.size() && sends[k].bytes == piece.bytes,
                   "{}: rank {} expects {} bytes from itself and sends {}", channel_.name, rank_, piece.bytes,
                   k < sends.size() ? sends[k].bytes : 0);
      copy(piece.offset, sends[k].offset, static_cast<size_t>(piece.bytes));
      ++k;
    }
  }

  Progress& progress_;
  Channel& channel_;
  int rank_;
  Staging send_staging_, receive_staging_;
  std::unique_ptr<NodeWindow> window_;  // from the first exchange by pieces on
  Traffic traffic_;
};

class MpiWorld : public World {
 public:
  explicit MpiWorld(const MpiOptions& options) : progress_(options) {}
  int rank() const override { return progress_.rank(); }
  int size() const override { return progress_.size(); }
  int node_of(int rank) const override { return progress_.node_of(rank); }
  const std::string& host_of(int rank) const override { return progress_.host_of(rank); }
  std::unique_ptr<Communicator> communicator(const std::vector<int>& ranks, const std::string& name) override {
    HEDDLE_CHECK(std::find(ranks.begin(), ranks.end(), rank()) != ranks.end(),
                 "rank {} is not in the group that it asks for ({})", rank(), name);
    for (const int r : ranks) HEDDLE_CHECK(r >= 0 && r < size(), "'{}' asks for rank {} of {}", name, r, size());
    return std::make_unique<MpiCommunicator>(progress_, progress_.channel(ranks, name));
  }
  void abort(const std::string& reason, bool input) override { progress_.abort(reason, input); }
  void set_patience(double seconds) override { progress_.set_patience(seconds); }
  void move_on(int core) override { progress_.move_on(core); }

 private:
  Progress progress_;
};

}  // namespace

bool mpi_available() { return true; }

std::unique_ptr<World> mpi_world(const MpiOptions& options) {
  device::tell_cuda_driver(true);  // MPI may start it
  HEDDLE_CHECK(options.part_bytes > 0 && options.part_bytes <= int64_t{1} << 30 && options.timeout_seconds > 0 &&
                   options.silence_seconds >= 0 && options.grace_seconds >= 0,
               "MPI options out of range");
  MpiOptions own = options;
  if (const char* const asks = std::getenv("HEDDLE_MPI_WINDOWS")) {
    if (const std::string_view word = asks; word != "0" && word != "1")
      config_error("HEDDLE_MPI_WINDOWS={}: takes 0 or 1", word);
    else if (word == "0")
      own.window_ranks = 0;
  }
  return std::make_unique<MpiWorld>(own);
}

}  // namespace heddle::comm

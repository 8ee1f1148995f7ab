#include "heddle/comm/mpi/pieces.h"

#include <algorithm>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/base/failure.h"

namespace heddle::comm::mpi {

namespace {

constexpr std::string_view kWhat = "exchange by pieces";

class MpiPieces {
 public:
  MpiPieces(Progress& progress, Channel& channel, int rank, NodeWindow& window, const ByPieces& all)
      : progress_(progress),
        channel_(channel),
        rank_(rank),
        window_(window),
        all_(all),
        completions_(std::make_shared<Completions>([&window] { window.wake(); })),
        come_(std::make_shared<Call>(channel, kWhat)),
        past_(std::make_shared<PastIt>(channel, kWhat, completions_)),
        incoming_(channel.ranks.size()) {
    come_->completions = completions_;
  }

  void run(const std::function<void(int, int64_t)>& sent) {
    check_letters(all_.sends);
    check_letters(all_.receives);
    expect();
    try {
      progress_.watch(past_);
      if (!come_->messages.empty()) progress_.submit(come_);
      for (size_t i = 0; all_.arrived && i < all_.receives.size(); ++i) {
        if (all_.receives[i].bytes == 0) all_.arrived(i);
      }
      for (size_t i = 0; i < all_.sends.size(); ++i) {
        const Piece& piece = all_.sends[i];
        if (all_.ready) all_.ready(i);
        if (piece.bytes > 0) send(piece, sent);
        if (all_.ready) take();  // where pieces have to be made; what is made already goes ahead
      }
      while (left_ > 0) take_or_sleep(PastIt::any);
      for (const auto& call : gone_) call->wait();
    } catch (...) {
      // Messages under way point at memory of this call, and can't be taken back.
      progress_.abort(heddle::text_of(std::current_exception()));
      leave();
      throw;
    }
    leave();
  }

 private:
  /// A stream of a peer of this node: for each piece its length, then its bytes.
  struct Incoming {
    std::vector<size_t> pieces;
    size_t next = 0;
    int64_t length = 0;
    int64_t done = 0;  // bytes of the length and the piece
  };
  static constexpr auto kLength = static_cast<int64_t>(sizeof(int64_t));

  bool near(int peer) const { return peer != rank_ && window_.reaches(peer); }
  Incoming& incoming(int peer) { return incoming_[peer]; }

  void check_peer(const Piece& piece) const {
    HEDDLE_CHECK(piece.peer >= 0 && piece.peer < std::ssize(channel_.ranks) && piece.bytes >= 0,
                 "{}: {} bytes with rank {} of {}", channel_.name, piece.bytes, piece.peer, channel_.ranks.size());
  }

  void check_letters(std::span<const Piece> pieces) const {
    std::vector<int64_t> with(channel_.ranks.size(), 0);
    for (const Piece& piece : pieces) {
      check_peer(piece);
      if (piece.peer != rank_ && piece.bytes > 0 && !near(piece.peer)) ++with[piece.peer];
    }
    const int64_t most = *std::max_element(with.begin(), with.end());
    if (most > progress_.letters()) {
      config_error("{}: {} pieces between two ranks; this MPI tells {} apart", channel_.name, most,
                   progress_.letters());
    }
  }

  void expect() {
    for (size_t i = 0; i < all_.receives.size(); ++i) {
      const Piece& piece = all_.receives[i];
      if (piece.peer == rank_ || piece.bytes == 0) continue;
      ++left_;
      if (near(piece.peer)) {
        incoming(piece.peer).pieces.push_back(i);
        past_->to_come[piece.peer] += piece.bytes;
        continue;
      }
      come_->messages.push_back({false, Kind::letter, piece.peer, channel_.received_letters[piece.peer]++,
                                 static_cast<std::byte*>(all_.receive) + piece.offset, piece.bytes});
      letter_of_.push_back(i);
    }
  }

  void send(const Piece& piece, const std::function<void(int, int64_t)>& sent) {
    // MPI takes what it sends as const too; Message points at either side.
    auto* const from = static_cast<std::byte*>(const_cast<void*>(all_.send)) + piece.offset;
    if (piece.peer == rank_) return hand_over(piece, from);
    sent(piece.peer, piece.bytes);
    if (near(piece.peer)) {
      write(piece.peer, reinterpret_cast<const std::byte*>(&piece.bytes), kLength);
      return write(piece.peer, from, piece.bytes);
    }
    const auto call = std::make_shared<Call>(channel_, kWhat);
    call->messages.push_back(
        {true, Kind::letter, piece.peer, channel_.sent_letters[piece.peer]++, from, piece.bytes});
    progress_.submit(call);
    gone_.push_back(call);
  }

  void write(int peer, const std::byte* from, int64_t bytes) {
    while (true) {
      const uint32_t rung = window_.rung();
      const int64_t written = window_.write(peer, from, bytes);
      if (written > 0) ++past_->moves;
      from += written;
      bytes -= written;
      if (bytes == 0) return;
      if (written == 0 && !take()) sleep(rung, peer);  // the ring is full
    }
  }

  /// A piece for this rank itself, to the next place that it has for one.
  void hand_over(const Piece& piece, const std::byte* from) {
    const auto own = [&](const Piece& p) { return p.peer == rank_ && p.bytes > 0; };
    while (next_own_ < all_.receives.size() && !own(all_.receives[next_own_])) ++next_own_;
    HEDDLE_CHECK(next_own_ < all_.receives.size() && all_.receives[next_own_].bytes == piece.bytes,
                 "{}: rank {} expects {} bytes from itself and sends {}", channel_.name, rank_,
                 next_own_ < all_.receives.size() ? all_.receives[next_own_].bytes : 0, piece.bytes);
    std::memcpy(static_cast<std::byte*>(all_.receive) + all_.receives[next_own_].offset, from,
                static_cast<size_t>(piece.bytes));
    const size_t at = next_own_++;
    if (all_.arrived) all_.arrived(at);
  }

  void take_or_sleep(int awaits) {
    const uint32_t rung = window_.rung();
    if (!take()) sleep(rung, awaits);
  }

  void sleep(uint32_t rung, int awaits) {
    past_->awaits = awaits;
    window_.sleep(rung);
    past_->awaits = PastIt::nobody;
  }

  /// Tells of all that has come; whether anything had.
  bool take() {
    const std::vector<size_t> letters = completions_->take();
    bool any = !letters.empty();
    for (const size_t letter : letters) arrived(letter_of_[letter]);
    for (int peer = 0; peer < static_cast<int>(incoming_.size()); ++peer) {
      while (read(peer)) any = true;
    }
    return any;
  }

  void arrived(size_t i) {
    --left_;
    if (all_.arrived) all_.arrived(i);
  }

  /// Takes what is there of the peer's next length or piece; whether anything was.
  bool read(int peer) {
    Incoming& in = incoming(peer);
    if (in.next == in.pieces.size()) return false;
    const size_t i = in.pieces[in.next];
    const Piece& piece = all_.receives[i];
    std::byte* const to = in.done < kLength
                              ? reinterpret_cast<std::byte*>(&in.length) + in.done
                              : static_cast<std::byte*>(all_.receive) + piece.offset + in.done - kLength;
    const int64_t came = window_.read(peer, to, (in.done < kLength ? 0 : piece.bytes) + kLength - in.done);
    if (came == 0) return false;
    ++past_->moves;
    in.done += came;
    HEDDLE_CHECK(in.done < kLength || in.length == piece.bytes,
                 "{}: rank {} expects {} bytes from rank {}, which sends {}", channel_.name, rank_, piece.bytes,
                 peer, in.length);
    if (in.done == kLength + piece.bytes) {
      past_->to_come[peer] -= piece.bytes;
      in.done = 0;
      ++in.next;
      arrived(i);
    }
    return true;
  }

  void leave() {
    progress_.unwatch(past_);
    completions_->leave();
  }

  Progress& progress_;
  Channel& channel_;
  const int rank_;
  NodeWindow& window_;
  const ByPieces& all_;
  const std::shared_ptr<Completions> completions_;
  const std::shared_ptr<Call> come_;
  const std::shared_ptr<PastIt> past_;
  std::vector<std::shared_ptr<Call>> gone_;
  std::vector<Incoming> incoming_;  // by rank in the group
  std::vector<size_t> letter_of_;   // the piece of a message
  size_t left_ = 0, next_own_ = 0;
};

}  // namespace

void exchange_by_pieces(Progress& progress, Channel& channel, int rank, NodeWindow& window, const ByPieces& all,
                        const std::function<void(int peer, int64_t bytes)>& sent) {
  MpiPieces(progress, channel, rank, window, all).run(sent);
}

}  // namespace heddle::comm::mpi

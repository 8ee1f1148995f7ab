// Exchanges by pieces between devices, over the tests' own runtime: each piece is made on the stream just before it
// may go, what has come is looked at on the stream where it is told of, and streams dawdle in any order.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "heddle/base/random.h"
#include "heddle/comm/device_world.h"
#include "heddle/comm/nccl/rounds.h"
#include "heddle/comm/threads/thread_world.h"
#include "tests/gpu/strict_runtime.h"

namespace heddle::comm::nccl {
namespace {

constexpr unsigned char kUntouched = 0xee;

struct Dice {
  Dice(uint64_t seed, std::string_view of) : key(RandomKey(seed).with(of)) {}
  int below(int count) { return static_cast<int>(key.bits(at++) % static_cast<uint64_t>(count)); }
  RandomKey key;
  uint64_t at = 0;
};

std::vector<int64_t> sizes_of(uint64_t round, int from, int to) {
  Dice dice(round, fmt::format("sizes {} {}", from, to));
  std::vector<int64_t> sizes(static_cast<size_t>(dice.below(4) == 0 ? 0 : dice.below(7)));
  for (int64_t& bytes : sizes) bytes = dice.below(4) == 0 ? 0 : 1 + dice.below(300);
  return sizes;
}
unsigned char byte_of(uint64_t round, int from, int to, size_t piece, int64_t at) {
  return static_cast<unsigned char>(
      RandomKey(round).bits(static_cast<uint64_t>(((from * 8 + to) * 64 + static_cast<int>(piece)) * 512 + at)));
}

// Runs on a stream when it comes there.
void on_stream(cudaStream_t stream, std::function<void()> work) {
  auto* kept = new std::function<void()>(std::move(work));
  strict::put_kernel(
      stream,
      [](void* data) {
        const std::unique_ptr<std::function<void()>> run(static_cast<std::function<void()>*>(data));
        (*run)();
      },
      kept);
}

struct Layout {
  std::vector<Piece> pieces;
  std::vector<size_t> number;  // of the piece between its two ranks
  int64_t bytes = 0;
};
Layout lay_out(const std::vector<std::vector<int64_t>>& by_peer, bool peers_first) {
  Layout layout;
  size_t most = 0;
  for (const auto& of : by_peer) most = std::max(most, of.size());
  const auto put = [&](size_t p, size_t k) {
    if (k >= by_peer[p].size()) return;
    layout.pieces.push_back({static_cast<int>(p), layout.bytes, by_peer[p][k]});
    layout.number.push_back(k);
    layout.bytes += by_peer[p][k];
  };
  for (size_t a = 0; a < (peers_first ? by_peer.size() : most); ++a) {
    for (size_t b = 0; b < (peers_first ? most : by_peer.size()); ++b)
      put(peers_first ? a : b, peers_first ? b : a);
  }
  return layout;
}

struct Rank {
  std::vector<unsigned char> send, receive, seen;
  std::vector<int> told;  // of each piece that is received
};

/// One exchange: made and looked at on `stream`, so that nothing may come early or late.
void exchange(Communicator& group, cudaStream_t stream, uint64_t round, bool made, Rank& r) {
  const int n = group.size(), me = group.rank();
  Dice dice(round, fmt::format("rank {}", me));
  std::vector<std::vector<int64_t>> out, in;
  for (int p = 0; p < n; ++p) {
    out.push_back(sizes_of(round, me, p));
    in.push_back(sizes_of(round, p, me));
  }
  const Layout from = lay_out(out, dice.below(2) == 0), to = lay_out(in, dice.below(2) == 0);
  r.send.assign(static_cast<size_t>(from.bytes) + 1, kUntouched);
  r.receive.assign(static_cast<size_t>(to.bytes) + 1, kUntouched);
  r.seen.assign(static_cast<size_t>(to.bytes) + 1, kUntouched);
  r.told.assign(to.pieces.size(), 0);
  const auto make = [&, round](size_t i) {
    const int us = dice.below(3) == 0 ? dice.below(400) : 0;
    on_stream(stream, [&r, p = from.pieces[i], k = from.number[i], us, round, me] {
      std::this_thread::sleep_for(std::chrono::microseconds(us));
      for (int64_t b = 0; b < p.bytes; ++b)
        r.send[static_cast<size_t>(p.offset + b)] = byte_of(round, me, p.peer, k, b);
    });
  };
  size_t asked = 0;
  if (!made) {
    for (size_t i = 0; i < from.pieces.size(); ++i) make(i);
  }
  const ByPieces all{
      .send = r.send.data(),
      .sends = from.pieces,
      .receive = r.receive.data(),
      .receives = to.pieces,
      .ready = !made ? std::function<void(size_t)>() : [&](size_t i) {
             EXPECT_EQ(i, asked++);
             make(i);
           },
      .arrived =
          [&](size_t i) {
            ++r.told[i];
            on_stream(stream, [&r, p = to.pieces[i]] {
              std::copy_n(r.receive.begin() + p.offset, p.bytes, r.seen.begin() + p.offset);
            });
          }};
  group.exchange_by_pieces(all);
  EXPECT_TRUE(!made || asked == from.pieces.size());
  // The buffers are free for what comes on the stream.
  on_stream(stream, [&r, me, round, sends = from, receives = to] {
    for (size_t i = 0; i < receives.pieces.size(); ++i) {
      const Piece& p = receives.pieces[i];
      EXPECT_EQ(r.told[i], 1) << "rank " << me << ", piece " << i;
      for (int64_t b = 0; b < p.bytes; ++b) {
        ASSERT_EQ(r.seen[static_cast<size_t>(p.offset + b)], byte_of(round, p.peer, me, receives.number[i], b))
            << "rank " << me << ", piece " << i << " of rank " << p.peer << ", round " << round;
      }
    }
    std::fill(r.send.begin(), r.send.end(), kUntouched);
    std::fill(r.receive.begin(), r.receive.end(), kUntouched);
  });
}

struct How {
  bool peers = false;
  int64_t least_bytes = 1;
};

void everything_comes(int ranks, const How& how) {
  std::atomic<int64_t> moved{0};
  run_on_threads(ranks, [&](World& control) {
    strict::device_of_thread() = control.rank();
    EngineCounts counts;
    std::unique_ptr<World> world = device_world(control);
    if (how.peers) world = with_peer_copies(std::move(world), control, how.least_bytes, counts);
    std::vector<int> all;
    for (int r = 0; r < ranks; ++r) all.push_back(r);
    const auto group = world->communicator(all, "comm.tp");
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, 0);
    group->run_on(stream);
    constexpr uint64_t kRounds = 12;
    std::vector<Rank> rounds(kRounds);
    Dice dice(3, fmt::format("host {}", control.rank()));
    for (uint64_t round = 0; round < kRounds; ++round) {
      if (dice.below(3) == 0) std::this_thread::sleep_for(std::chrono::microseconds(dice.below(3000)));
      exchange(*group, stream, round, round % 3 != 0, rounds[round]);
    }
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    moved += counts.tally().bytes;
  });
  EXPECT_EQ(moved > 0, how.peers && how.least_bytes < 1'000'000);
}

TEST(ByPieces, ByNccl) {
  for (const int ranks : {2, 3, 4}) everything_comes(ranks, {});
}
TEST(ByPieces, ByCopies) {
  for (const int ranks : {2, 3, 4}) everything_comes(ranks, {true, 1});
}
TEST(ByPieces, SomeByCopies) {
  for (const int ranks : {2, 3, 4}) everything_comes(ranks, {true, 400});
}
TEST(ByPieces, NoneByCopies) { everything_comes(3, {true, 1'000'000}); }

// Hosts meet nowhere: the one that is ahead has its products on the stream before its peer has begun.
TEST(ByPieces, AHostWaitsForNobody) {
  std::atomic<bool> ahead{false};
  run_on_threads(2, [&](World& control) {
    strict::device_of_thread() = control.rank();
    EngineCounts counts;
    const std::unique_ptr<World> world = with_peer_copies(device_world(control), control, 1, counts);
    const auto group = world->communicator({0, 1}, "comm.tp");
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, 0);
    group->run_on(stream);
    Rank first, second;
    if (control.rank() == 1) {
      for (int i = 0; i < 2000 && !ahead; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_TRUE(ahead) << "the other rank's host does not come back";
    }
    exchange(*group, stream, 1, true, first);
    exchange(*group, stream, 2, true, second);
    ahead = true;
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  });
}

// Played through as NCCL does: a message goes when the rounds in which its two ranks are both have it, and a rank
// goes on when its round is over. A circle of ranks that wait for each other would stop that.
TEST(ByPieces, RoundsAreInOneOrder) {
  for (const int n : {2, 3, 5}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      struct Player {
        Layout out, in;
        std::vector<Round> rounds;
        size_t at = 0;
        bool ended() const { return at == rounds.size(); }
      };
      std::vector<Player> ranks;
      for (int r = 0; r < n; ++r) {
        std::vector<std::vector<int64_t>> to, from;
        for (int p = 0; p < n; ++p) {
          to.push_back(sizes_of(seed, r, p));
          from.push_back(sizes_of(seed, p, r));
        }
        Player& player = ranks.emplace_back();
        player.out = lay_out(to, seed % 2 == 0);
        player.in = lay_out(from, seed % 3 == 0);
        player.rounds = rounds_of(player.out.pieces, player.in.pieces, r, n);
      }
      for (bool any = true; any;) {
        any = false;
        for (int r = 0; r < n; ++r) {
          Player& from = ranks[static_cast<size_t>(r)];
          if (from.ended()) continue;
          Round& round = from.rounds[from.at];
          if (round.send == Round::none) continue;
          const Piece& sent = from.out.pieces[round.send];
          Player& to = ranks[static_cast<size_t>(sent.peer)];
          if (to.ended()) continue;
          Round& theirs = to.rounds[to.at];
          if (theirs.receive == Round::none || to.in.pieces[theirs.receive].peer != r) continue;
          EXPECT_EQ(to.in.number[theirs.receive], from.out.number[round.send]);
          round.send = theirs.receive = Round::none;
          any = true;
        }
        for (Player& player : ranks) {
          if (player.ended()) continue;
          const Round& round = player.rounds[player.at];
          if (round.send != Round::none || round.receive != Round::none) continue;
          ++player.at;
          any = true;
        }
      }
      for (const Player& player : ranks) EXPECT_TRUE(player.ended()) << n << " ranks wait for each other";
    }
  }
}

}  // namespace
}  // namespace heddle::comm::nccl

#include "tests/comm/world_cases.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "heddle/base/error.h"

namespace heddle::comm {

namespace {

using Random = std::mt19937_64;

int below(Random& random, int bound) { return static_cast<int>(random() % static_cast<uint64_t>(bound)); }

std::byte expected_byte(uint64_t round, int from, int to, size_t piece, int64_t at) {
  uint64_t x =
      (((round * 64 + static_cast<uint64_t>(from)) * 64 + static_cast<uint64_t>(to)) * 4096 + piece) * 2654435761u;
  x += static_cast<uint64_t>(at) * 0x9e3779b97f4a7c15;
  return static_cast<std::byte>(x >> 56);
}

constexpr std::byte untouched{0xee};

/// One side of one rank's exchange: pieces at places of its own choice, with gaps or without.
struct Layout {
  std::vector<Piece> pieces;
  std::vector<size_t> number;  // of the piece between its two ranks
  int64_t lowest = 0, highest = 0;
};

Layout lay_out(const std::vector<std::vector<int64_t>>& bytes_by_peer, Random& random) {
  Layout layout;
  std::vector<std::pair<int, size_t>> order;
  for (size_t p = 0; p < bytes_by_peer.size(); ++p) {
    for (size_t k = 0; k < bytes_by_peer[p].size(); ++k) order.emplace_back(static_cast<int>(p), k);
  }
  const bool mixed = below(random, 2) == 0, gaps = below(random, 2) == 0;
  if (mixed) {  // pieces of a pair stay in order, pairs interleave
    std::vector<int> owners;
    for (const auto& [p, k] : order) owners.push_back(p);
    std::shuffle(owners.begin(), owners.end(), random);
    std::vector<size_t> next(bytes_by_peer.size(), 0);
    order.clear();
    for (const int p : owners) order.emplace_back(p, next[static_cast<size_t>(p)]++);
  }
  int64_t at = -below(random, 100);
  layout.lowest = at;
  for (const auto& [p, k] : order) {
    const int64_t bytes = bytes_by_peer[static_cast<size_t>(p)][k];
    if (gaps) at += below(random, 30);
    layout.pieces.push_back({p, at, bytes});
    layout.number.push_back(k);
    at += bytes;
  }
  layout.highest = at;
  return layout;
}

/// `sizes(from, to)`: bytes of the pieces between two ranks; all ranks get the same answers.
void exchange_and_check(Communicator& group, uint64_t round, Random& own,
                        const std::function<std::vector<int64_t>(int, int)>& sizes) {
  const int n = group.size(), me = group.rank();
  std::vector<std::vector<int64_t>> out, in;
  for (int p = 0; p < n; ++p) {
    out.push_back(sizes(me, p));
    in.push_back(sizes(p, me));
  }
  const Layout from = lay_out(out, own), to = lay_out(in, own);
  std::vector<std::byte> sent(static_cast<size_t>(from.highest - from.lowest + 1));
  std::vector<std::byte> got(static_cast<size_t>(to.highest - to.lowest + 1), untouched), want = got;
  std::byte* const send = sent.data() - from.lowest;
  for (size_t i = 0; i < from.pieces.size(); ++i) {
    const Piece& piece = from.pieces[i];
    for (int64_t b = 0; b < piece.bytes; ++b) {
      send[piece.offset + b] = expected_byte(round, me, piece.peer, from.number[i], b);
    }
  }
  for (size_t i = 0; i < to.pieces.size(); ++i) {
    const Piece& piece = to.pieces[i];
    for (int64_t b = 0; b < piece.bytes; ++b) {
      want[static_cast<size_t>(piece.offset - to.lowest + b)] =
          expected_byte(round, piece.peer, me, to.number[i], b);
    }
  }
  const Traffic before = group.traffic();
  group.exchange(send, from.pieces, got.data() - to.lowest, to.pieces);
  HEDDLE_CHECK(got == want, "round {}: rank {} of {} received other bytes than were sent", round, me, n);
  int64_t away = 0;
  for (const Piece& piece : from.pieces) away += piece.peer == me ? 0 : piece.bytes;
  const Traffic after = group.traffic();
  HEDDLE_CHECK(
      after.within_node_bytes + after.across_nodes_bytes - before.within_node_bytes - before.across_nodes_bytes ==
          away,
      "round {}: rank {} has miscounted", round, me);
}

/// The same piece by piece: nothing is there before it is ready, all of it when it has arrived, each once.
void exchange_by_pieces_and_check(Communicator& group, uint64_t round, Random& own,
                                  const std::function<std::vector<int64_t>(int, int)>& sizes) {
  const int n = group.size(), me = group.rank();
  std::vector<std::vector<int64_t>> out, in;
  for (int p = 0; p < n; ++p) {
    out.push_back(sizes(me, p));
    in.push_back(sizes(p, me));
  }
  const Layout from = lay_out(out, own), to = lay_out(in, own);
  std::vector<std::byte> sent(static_cast<size_t>(from.highest - from.lowest + 1), untouched);
  std::vector<std::byte> got(static_cast<size_t>(to.highest - to.lowest + 1), untouched);
  std::byte *const send = sent.data() - from.lowest, *const receive = got.data() - to.lowest;
  std::vector<int> made(from.pieces.size(), 0), came(to.pieces.size(), 0);
  const bool slow = below(own, 3) == 0;
  const auto dawdle = [&] {
    if (slow && below(own, 4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(below(own, 300)));
  };
  group.exchange_by_pieces(
      {.send = send,
       .sends = from.pieces,
       .receive = receive,
       .receives = to.pieces,
       .ready =
           [&](size_t i) {
             dawdle();
             HEDDLE_CHECK(i == 0 || made[i - 1] == 1, "piece {} is asked for out of turn", i);
             ++made[i];
             const Piece& piece = from.pieces[i];
             for (int64_t b = 0; b < piece.bytes; ++b)
               send[piece.offset + b] = expected_byte(round, me, piece.peer, from.number[i], b);
           },
       .arrived =
           [&](size_t i) {
             dawdle();
             ++came[i];
             const Piece& piece = to.pieces[i];
             for (int64_t b = 0; b < piece.bytes; ++b) {
               HEDDLE_CHECK(receive[piece.offset + b] == expected_byte(round, piece.peer, me, to.number[i], b),
                            "round {}: piece {} of rank {} is not what rank {} sends", round, i, me, piece.peer);
             }
           }});
  for (const std::vector<int>& times : {made, came}) {
    HEDDLE_CHECK(std::all_of(times.begin(), times.end(), [](int t) { return t == 1; }),
                 "round {}: rank {} was told of a piece twice or never", round, me);
  }
  // Without anybody to ask or to tell, and beside exchanges as a whole.
  std::vector<std::byte> again(got.size(), untouched);
  group.exchange_by_pieces({.send = send,
                            .sends = from.pieces,
                            .receive = again.data() - to.lowest,
                            .receives = to.pieces,
                            .ready = nullptr,
                            .arrived = nullptr});
  HEDDLE_CHECK(again == got, "round {}: rank {} received other bytes the second time", round, me);
  exchange_and_check(group, round, own, sizes);
}

std::vector<int> everybody_world_cases(const World& world) {
  std::vector<int> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Random numbers of pieces of random sizes, many of them empty. Small, so that a run is many rounds.
std::vector<int64_t> drawn_sizes(uint64_t seed, uint64_t round, int from, int to, int most_bytes) {
  Random random(seed * 1000003 + round * 4099 + static_cast<uint64_t>(from) * 64 + static_cast<uint64_t>(to));
  random.discard(4);
  std::vector<int64_t> sizes(static_cast<size_t>(below(random, 4) == 0 ? 0 : below(random, 12)));
  for (int64_t& bytes : sizes) bytes = below(random, 3) == 0 ? 0 : below(random, most_bytes);
  return sizes;
}

void random_pieces(World& world, uint64_t seed) {
  const auto group = world.communicator(everybody_world_cases(world), "pieces");
  Random own(seed + 77 * static_cast<uint64_t>(world.rank()));
  for (uint64_t round = 0; round < 300; ++round) {
    exchange_and_check(*group, round, own,
                       [&](int from, int to) { return drawn_sizes(seed, round, from, to, 600); });
  }
}

void piece_by_piece(World& world, uint64_t seed) {
  const auto group = world.communicator(everybody_world_cases(world), "piece by piece");
  Random own(seed + 78 * static_cast<uint64_t>(world.rank()));
  for (uint64_t round = 0; round < 60; ++round) {
    exchange_by_pieces_and_check(*group, round, own,
                                 [&](int from, int to) { return drawn_sizes(seed, round, from, to, 600); });
  }
  const int64_t part = 256 << 10;
  exchange_by_pieces_and_check(*group, 1, own, [&](int, int) {
    return std::vector<int64_t>{part, 3 * part + 1, 1, 9 * part};
  });
}

void big_messages(World& world, uint64_t seed) {
  const auto group = world.communicator(everybody_world_cases(world), "big");
  Random own(seed + static_cast<uint64_t>(world.rank()));
  // About the places where messages are cut into parts, and above.
  const int64_t part = 256 << 10;
  const std::vector<int64_t> all{part - 1, part, part + 1, 2 * part, 5 * part + 7, 9 * part, 4096, 1};
  for (uint64_t round = 0; round < 6; ++round) {
    exchange_and_check(*group, round, own, [&](int from, int to) {
      Random random(seed + round * 4099 + static_cast<uint64_t>(from) * 64 + static_cast<uint64_t>(to));
      std::vector<int64_t> sizes(1 + random() % 2);
      for (int64_t& bytes : sizes) bytes = all[random() % all.size()];
      return sizes;
    });
  }
}

/// Every rank has several streams at once, each with its own group, in no common order.
void concurrent_groups(World& world, uint64_t seed) {
  const int n = world.size(), me = world.rank();
  struct Stream {
    std::string name;
    std::vector<int> ranks;
  };
  std::vector<Stream> streams{{"all", everybody_world_cases(world)}, {"again", everybody_world_cases(world)}};
  std::vector<int> backwards = everybody_world_cases(world);
  std::reverse(backwards.begin(), backwards.end());
  if (n > 1) streams.push_back({"all", backwards});  // the same name, another order: another group
  for (int width = 2; width < n; width *= 2) {
    std::vector<int> neighbours, strided;
    for (int r = 0; r < n; ++r) {
      if (r / width == me / width) neighbours.push_back(r);
      if (r % width == me % width) strided.push_back(r);
    }
    streams.push_back({fmt::format("neighbours of {}", width), neighbours});
    streams.push_back({fmt::format("strided by {}", width), strided});
  }
  Random own(seed + 31 * static_cast<uint64_t>(me));
  std::shuffle(streams.begin(), streams.end(), own);
  std::vector<std::unique_ptr<Communicator>> groups;
  for (const Stream& stream : streams) groups.push_back(world.communicator(stream.ranks, stream.name));
  std::vector<std::exception_ptr> failures(streams.size());
  std::vector<std::thread> threads;
  for (size_t s = 0; s < streams.size(); ++s) {
    threads.emplace_back([&, s] {
      try {
        const uint64_t of_group =
            std::hash<std::string>()(streams[s].name) % 1000 + static_cast<uint64_t>(streams[s].ranks.front());
        Random delays(seed + s * 131 + static_cast<uint64_t>(me));
        for (uint64_t round = 0; round < 60; ++round) {
          if (below(delays, 4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(below(delays, 400)));
          exchange_and_check(*groups[s], of_group * 100 + round, delays,
                             [&](int from, int to) { return drawn_sizes(seed + of_group, round, from, to, 2000); });
        }
      } catch (...) {
        failures[s] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

/// Sends run ahead of their receives as far as they like, and arrive in order; exchanges in between don't mix in.
void letters_in_order(World& world, uint64_t seed) {
  const auto group = world.communicator(everybody_world_cases(world), "letters");
  const int n = world.size(), me = world.rank(), next = (me + 1) % n, before = (me + n - 1) % n;
  const int letters = 200;
  Random own(seed);
  const auto bytes_of = [&](int from, int k) {
    Random random(seed + static_cast<uint64_t>(from) * 1000 + static_cast<uint64_t>(k));
    return k % 50 == 49 ? int64_t{700'000} : static_cast<int64_t>(random() % 3000) * (k % 3);
  };
  std::vector<std::byte> letter;
  for (int k = 0; k < letters; ++k) {
    letter.assign(static_cast<size_t>(bytes_of(me, k)), std::byte{0});
    for (size_t b = 0; b < letter.size(); ++b) {
      letter[b] = expected_byte(static_cast<uint64_t>(k), me, next, 1, static_cast<int64_t>(b));
    }
    group->send(letter.data(), std::ssize(letter), next);
  }
  exchange_and_check(*group, 1, own, [](int, int) { return std::vector<int64_t>{100}; });
  for (int k = 0; k < letters; ++k) {
    letter.assign(static_cast<size_t>(bytes_of(before, k)), untouched);
    group->receive(letter.data(), std::ssize(letter), before);
    for (size_t b = 0; b < letter.size(); ++b) {
      HEDDLE_CHECK(letter[b] == expected_byte(static_cast<uint64_t>(k), before, me, 1, static_cast<int64_t>(b)),
                   "letter {} of rank {} arrived wrong at {}", k, before, b);
    }
  }
  group->send(nullptr, 0, next);
  group->receive(nullptr, 0, before);
}

/// A group may be asked for again and again, and groups of one rank talk to themselves only.
void groups_again(World& world, uint64_t seed) {
  Random own(seed);
  for (uint64_t round = 0; round < 20; ++round) {
    const auto group = world.communicator(everybody_world_cases(world), "again and again");
    exchange_and_check(*group, round, own, [&](int, int) { return std::vector<int64_t>{8}; });
    const auto alone = world.communicator({world.rank()}, "alone");
    exchange_and_check(*alone, round, own, [&](int, int) { return std::vector<int64_t>{5, 0, 7}; });
  }
}

void places(World& world, uint64_t) {
  HEDDLE_CHECK(world.rank() >= 0 && world.rank() < world.size(), "rank {} of {}", world.rank(), world.size());
  HEDDLE_CHECK(world.node_of(0) == 0, "the first rank is on node {}", world.node_of(0));
  int nodes = 0;
  for (int r = 0; r < world.size(); ++r) {
    HEDDLE_CHECK(world.node_of(r) >= 0 && world.node_of(r) <= nodes, "rank {} on node {}", r, world.node_of(r));
    nodes = std::max(nodes, world.node_of(r) + 1);
    HEDDLE_CHECK(!world.host_of(r).empty(), "rank {} has a nameless host", r);
  }
  std::vector<int> backwards = everybody_world_cases(world);
  std::reverse(backwards.begin(), backwards.end());
  const auto group = world.communicator(backwards, "backwards");
  HEDDLE_CHECK(group->rank() == world.size() - 1 - world.rank() && group->size() == world.size(), "group ranks");
  HEDDLE_CHECK(group->node_of(0) == world.node_of(world.size() - 1), "nodes of a group");
}

}  // namespace

const std::vector<WorldCase>& world_cases() {
  static const std::vector<WorldCase> cases{
      {"places", places},
      {"random_pieces", random_pieces},
      {"piece_by_piece", piece_by_piece},
      {"big_messages", big_messages},
      {"concurrent_groups", concurrent_groups},
      {"letters_in_order", letters_in_order},
      {"groups_again", groups_again},
      {"experts", experts},
  };
  return cases;
}

}  // namespace heddle::comm

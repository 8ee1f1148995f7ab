#include "heddle/session/slow/pair_probe.h"

#include <algorithm>
#include <array>

#include "heddle/base/clock.h"
#include "heddle/base/statistics.h"

namespace heddle::session {

namespace {

constexpr double kLeast_s = 0.5e-3;  // below which a difference says nothing: threads are late by that
constexpr size_t kLeastPairs = 3;    // pairs whose middle says what is usual

// The partner in a round of a tournament of n (even) players: the first stays, the others turn.
int partner_in(int round, int player, int n) {
  const int turning = n - 1;
  const auto at = [&](int place) { return place == 0 ? 0 : (place - 1 + round) % turning + 1; };
  for (int place = 0; place < n; ++place) {
    if (at(place) == player) return at(n - 1 - place);
  }
  return player;
}

}  // namespace

std::vector<double> transfer_times(comm::Communicator& link, train::RankExchange& ranks, int64_t bytes, int times) {
  std::vector<double> transfer_s(static_cast<size_t>(ranks.size()), 0);
  const int players = ranks.size() + ranks.size() % 2;
  std::vector<char> out(static_cast<size_t>(bytes), 1), in(static_cast<size_t>(bytes));
  for (int round = 0; round + 1 < players; ++round) {
    const int partner = partner_in(round, ranks.rank(), players);
    for (int i = 0; i < times; ++i) {
      ranks.any(false);  // all begin together
      std::vector<comm::Piece> pieces;
      if (partner < ranks.size() && partner != ranks.rank()) pieces.push_back({partner, 0, bytes});
      const double began_s = now_s();
      link.exchange(out.data(), pieces, in.data(), pieces);
      const double took_s = now_s() - began_s;
      if (pieces.empty()) continue;
      double& shortest_s = transfer_s[partner];
      shortest_s = i == 0 ? took_s : std::min(shortest_s, took_s);
    }
  }
  return transfer_s;
}

std::vector<std::vector<double>> all_transfer_times(comm::Communicator& link, train::RankExchange& ranks,
                                                    int64_t bytes, int times) {
  const auto n = static_cast<size_t>(ranks.size());
  const std::vector<double> own = transfer_times(link, ranks, bytes, times);
  std::vector<double> flat(n * n, 0);
  std::copy(own.begin(), own.end(), flat.begin() + static_cast<std::ptrdiff_t>(n) * ranks.rank());
  ranks.sum(flat);
  std::vector<std::vector<double>> all;
  for (auto at = flat.begin(); at != flat.end(); at += static_cast<std::ptrdiff_t>(n))
    all.emplace_back(at, at + static_cast<std::ptrdiff_t>(n));
  return all;
}

std::vector<SlowPair> slow_pairs(const std::vector<std::vector<double>>& now,
                                 const std::vector<std::vector<double>>& before, std::span<const int> node_of) {
  const size_t n = now.size();
  // The end that waits less knows better.
  const auto of = [](const std::vector<std::vector<double>>& all, size_t a, size_t b) {
    return std::min(all[a][b], all[b][a]);
  };
  const auto crosses = [&](size_t a, size_t b) { return node_of[a] != node_of[b] ? 1u : 0u; };
  std::array<std::vector<double>, 2> alike_s;  // on one node, on two
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = a + 1; b < n; ++b) alike_s[crosses(a, b)].push_back(of(now, a, b));
  }
  std::vector<SlowPair> slow;
  std::vector<size_t> of_rank(n, 0);
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = a + 1; b < n; ++b) {
      const double took_s = of(now, a, b);
      const std::vector<double>& alike = alike_s[crosses(a, b)];
      const double usual_s = !before.empty()              ? of(before, a, b)
                             : alike.size() < kLeastPairs ? took_s
                                                          : quantile(alike, 0.5);
      if (usual_s <= 0 || took_s < kSlowPair * usual_s || took_s - usual_s < kLeast_s) continue;
      slow.push_back({static_cast<int>(a), static_cast<int>(b), took_s, usual_s});
      ++of_rank[a];
      ++of_rank[b];
    }
  }
  // If all pairs of a rank are slow, and none without it, that rank's link is slow.
  for (size_t r = 0; n > 2 && r < n; ++r) {
    if (of_rank[r] + 1 < n) continue;
    std::vector<SlowPair> own, rest;
    for (const SlowPair& pair : slow)
      (pair.a == static_cast<int>(r) || pair.b == static_cast<int>(r) ? own : rest).push_back(pair);
    if (!rest.empty()) continue;
    std::sort(own.begin(), own.end(), [](const SlowPair& x, const SlowPair& y) { return x.times() < y.times(); });
    SlowPair middle = own[own.size() / 2];
    middle.a = static_cast<int>(r);
    middle.b = -1;
    return {middle};
  }
  std::sort(slow.begin(), slow.end(), [](const SlowPair& x, const SlowPair& y) { return x.times() > y.times(); });
  return slow;
}

}  // namespace heddle::session

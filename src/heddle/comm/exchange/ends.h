// The amounts that go to each peer, and come from it: what the host knows of an exchange before it runs, from its
// copies of the counts.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "heddle/comm/exchange/piece_list.h"
#include "heddle/comm/exchange/places.h"
#include "heddle/device/routing_plan.h"

namespace heddle::comm {

/// The peers of one hop in order, with what each sends or gets. These are rows of experts, tokens whose sum goes
/// back as a sum (many), and those whose one row goes back as it is (alone).
struct Ends {
  std::vector<int> peer;
  std::vector<int64_t> rows, many, alone;

  void reserve(size_t peers) {
    peer.reserve(peers);
    for (auto* counts : {&rows, &many, &alone}) counts->reserve(peers);
  }
  static int64_t sum(const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  }
  int64_t tokens() const { return sum(many) + sum(alone); }
  /// Tokens of each peer; where every row travels by itself, its rows.
  std::vector<int64_t> all() const {
    std::vector<int64_t> counts(many);
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += alone[i];
    return counts;
  }
};

/// The ends of both hops, as rows go to the experts; back they go the other way.
struct ExchangeEnds {
  ExchangeEnds(const device::RoutingPlan& plan, const Places& places, bool marked);
  /// This constructor is for a host that does not know the amounts.
  explicit ExchangeEnds(const Places& places) : sources{places.self} {}

  std::vector<int> sources;  // whose tokens leave from here for the ranks of experts
  Ends leave, arrive;        // at the ranks of experts, as this rank passes tokens on and as it has experts
  Ends out, in;              // across nodes, as this rank is a source and as it passes tokens on
};

/// Sends what lies from `from` on to each end in order, `each` bytes a count; receives likewise.
void send_runs(PieceList& piece_list, const Ends& to, const std::vector<int64_t>& counts, const void* from,
               int64_t each);
void receive_runs(PieceList& piece_list, const Ends& from, const std::vector<int64_t>& counts, void* to,
                  int64_t each);

}  // namespace heddle::comm

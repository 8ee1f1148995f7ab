#include "heddle/comm/exchange/choice.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/ir/topology_words.h"

namespace heddle::comm {

using ir::Topology;

void Hop::add(const Places& places, int from, int to, double bytes) {
  if (from == to) return;
  Of &sender = of[from], &receiver = of[to];
  const bool near = places.node[from] == places.node[to];
  (near ? sender.within_out : sender.across_out) += bytes;
  (near ? receiver.within_in : receiver.across_in) += bytes;
}

double Hop::most_within() const {
  double bytes = 0;
  for (const Of& one : of) bytes = std::max({bytes, one.within_out, one.within_in});
  return bytes;
}

double Hop::most_across(const Places& places) const {
  double bytes = 0;
  for (const std::vector<int>& members : places.members) {
    double out = 0, in = 0;
    for (const int r : members) {
      out += of[r].across_out;
      in += of[r].across_in;
    }
    bytes = std::max({bytes, out, in});
  }
  return bytes;
}

template <class Number>
Hops hops_of(Topology topology, const SourceCounts<Number>& all, const Places& places, double row_bytes,
             double sum_bytes) {
  const auto d = [](Number n) { return static_cast<double>(n); };
  const int ranks = static_cast<int>(places.node.size());
  const Hop nothing{std::vector<Hop::Of>(places.node.size())};
  const auto back_bytes = [&](double count, double alone) {
    return alone * row_bytes + (count - alone) * sum_bytes;
  };
  if (topology == Topology::plain || topology == Topology::rank) {
    const bool plain = topology == Topology::plain;
    Hops hops{{nothing}, {nothing}};
    for (int p = 0; p < ranks; ++p) {
      for (int r = 0; r < ranks; ++r) {
        const double count = d(plain ? all.rows(p, r) : all.tokens_on(p, r));
        hops.dispatch[0].add(places, p, r, count * row_bytes);
        hops.combine[0].add(places, r, p, back_bytes(count, plain ? count : d(all.alone_on(p, r))));
      }
    }
    return hops;
  }
  const bool merge = topology == Topology::merge;
  Hops hops{{nothing, nothing}, {nothing, nothing}};
  for (int p = 0; p < ranks; ++p) {
    for (int n = 0; n < places.nodes(); ++n) {
      const int gate = places.gate_of(p, n);
      const double count = d(merge ? all.tokens(p) : all.tokens_on_node(p, n));
      const double alone = merge ? 0 : d(all.alone_on_node(p, n));
      hops.dispatch[0].add(places, p, gate, count * row_bytes);
      hops.combine[1].add(places, gate, p, back_bytes(count, alone));
      double rows = 0;  // on the node
      for (const int r : places.members[n]) rows += d(all.rows(p, r));
      for (const int r : places.members[n]) {
        const double tokens = d(all.tokens_on(p, r));
        // A token's only row on the node is on any of its ranks, as all rows are.
        const double alone_here = rows > 0 ? alone * d(all.rows(p, r)) / rows : 0;
        hops.dispatch[1].add(places, gate, r, tokens * row_bytes);
        hops.combine[0].add(places, r, gate, back_bytes(tokens, alone_here));
      }
    }
  }
  return hops;
}

device::ExchangeRates rates_of(const ir::Attributes& a) {
  return {.row_bytes = static_cast<double>(a.integer("row_bytes")),
          .sum_bytes = static_cast<double>(a.integer("sum_bytes")),
          .within_bytes_per_us = a.number("within_bytes_per_us"),
          .across_bytes_per_us = a.number("across_bytes_per_us"),
          .within_latency_us = a.number("within_latency_us"),
          .across_latency_us = a.number("across_latency_us")};
}

double exchange_us(const Hops& hops, const Places& places, const device::ExchangeRates& rates) {
  double us = 0;
  for (const std::vector<Hop>* way : {&hops.dispatch, &hops.combine}) {
    for (const Hop& hop : *way) {
      const double across = hop.most_across(places), within = hop.most_within();
      us += std::max(across == 0 ? 0 : rates.across_latency_us + across / rates.across_bytes_per_us,
                     within == 0 ? 0 : rates.within_latency_us + within / rates.within_bytes_per_us);
    }
  }
  return us;
}

template <class Number>
Topology cheapest(const SourceCounts<Number>& all, const Places& places, const device::ExchangeRates& rates) {
  const auto us_of = [&](Topology topology) {
    return exchange_us(hops_of(topology, all, places, rates.row_bytes, rates.sum_bytes), places, rates);
  };
  Topology best = Topology::plain;
  double best_us = us_of(best);
  for (const Topology topology : {Topology::rank, Topology::node, Topology::merge}) {
    if (places.nodes() == 1 && topology != Topology::rank) continue;
    const double us = us_of(topology);
    if (us < best_us) {
      best = topology;
      best_us = us;
    }
  }
  return best;
}

std::optional<Topology> topology_named(std::string_view word, const Places& places) {
  const std::optional<ir::Topology> named = find_word<ir::Topology>(word);
  HEDDLE_CHECK(named, "no exchange topology is named '{}'", word);
  switch (*named) {
    case ir::Topology::automatic: return std::nullopt;
    case ir::Topology::plain: return Topology::plain;
    case ir::Topology::rank: return Topology::rank;
    case ir::Topology::node: return places.nodes() == 1 ? Topology::rank : Topology::node;
    case ir::Topology::merge: return places.nodes() == 1 ? Topology::rank : Topology::merge;
  }
  internal_error("topology {}", static_cast<int>(*named));
}

template Hops hops_of(Topology, const SourceCounts<int32_t>&, const Places&, double, double);
template Hops hops_of(Topology, const SourceCounts<double>&, const Places&, double, double);
template Topology cheapest(const SourceCounts<int32_t>&, const Places&, const device::ExchangeRates&);
template Topology cheapest(const SourceCounts<double>&, const Places&, const device::ExchangeRates&);

}  // namespace heddle::comm

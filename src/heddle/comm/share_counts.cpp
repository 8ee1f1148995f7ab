// share_counts: how many rows each rank has for each expert of the group, and which topology the exchanges of this
// layer and microbatch take. counts_to_host: the host's copy, with the row counts that it needs.
//
// The choice is made on every rank from the same gathered numbers, so all make the same.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "heddle/base/error.h"
#include "heddle/comm/exchange_kernels.h"
#include "heddle/comm/parcels.h"
#include "heddle/comm/row_lists.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

/// What every rank knows of every source p: its tokens, its rows for each rank, its tokens with rows for each rank,
/// its tokens with rows for each node, and those of them that have one row there only.
class Gathered {
 public:
  Gathered(int64_t ranks, int64_t nodes)
      : ranks_(ranks),
        each_(1 + 3 * ranks + 2 * nodes),
        nodes_(nodes),
        numbers_(static_cast<size_t>(ranks * each_)) {}
  int32_t* of(int64_t p) { return numbers_.data() + p * each_; }
  int64_t each() const { return each_; }

  int64_t tokens(int64_t p) const { return at(p, 0); }
  int64_t rows(int64_t p, int64_t r) const { return at(p, 1 + r); }
  int64_t tokens_on(int64_t p, int64_t r) const { return at(p, 1 + ranks_ + r); }
  int64_t tokens_on_node(int64_t p, int64_t n) const { return at(p, 1 + 2 * ranks_ + n); }
  int64_t alone_on(int64_t p, int64_t r) const { return at(p, 1 + 2 * ranks_ + nodes_ + r); }
  int64_t alone_on_node(int64_t p, int64_t n) const { return at(p, 1 + 3 * ranks_ + nodes_ + n); }

 private:
  int64_t at(int64_t p, int64_t i) const { return numbers_[static_cast<size_t>(p * each_ + i)]; }
  int64_t ranks_, each_, nodes_;
  std::vector<int32_t> numbers_;
};

/// The time of one hop: the busiest node's link to the others, and the busiest rank's to its neighbours, each in
/// its busier direction; they work side by side.
class Hop {
 public:
  explicit Hop(const Places& places)
      : places_(places), across_(static_cast<size_t>(places.nodes())), within_(places.node.size()) {}

  void add(int from, int to, double bytes) {
    if (from == to) return;
    const auto a = static_cast<size_t>(from), b = static_cast<size_t>(to);
    const auto m = static_cast<size_t>(places_.node[a]), n = static_cast<size_t>(places_.node[b]);
    if (m == n) {
      within_[a][0] += bytes;
      within_[b][1] += bytes;
    } else {
      across_[m][0] += bytes;
      across_[n][1] += bytes;
    }
  }
  double us(const ir::Attributes& a) const {
    const auto most = [](const std::vector<std::array<double, 2>>& links) {
      double bytes = 0;
      for (const auto& link : links) bytes = std::max({bytes, link[0], link[1]});
      return bytes;
    };
    const double across = most(across_), within = most(within_);
    return std::max(across == 0 ? 0 : a.number("across_latency_us") + across / a.number("across_bytes_per_us"),
                    within == 0 ? 0 : a.number("within_latency_us") + within / a.number("within_bytes_per_us"));
  }

 private:
  const Places& places_;
  std::vector<std::array<double, 2>> across_, within_;  // bytes out, bytes in
};

/// The time of rows to the experts and of the sums back.
double exchange_us(Topology topology, const Gathered& all, const Places& places, const ir::Attributes& a) {
  const int ranks = static_cast<int>(places.node.size());
  const double row = static_cast<double>(a.integer("row_bytes")), sum = static_cast<double>(a.integer("sum_bytes"));
  if (topology == Topology::plain || topology == Topology::rank) {
    const bool plain = topology == Topology::plain;
    Hop out(places), back(places);
    for (int p = 0; p < ranks; ++p) {
      for (int r = 0; r < ranks; ++r) {
        const auto count = static_cast<double>(plain ? all.rows(p, r) : all.tokens_on(p, r));
        const double alone = plain ? count : static_cast<double>(all.alone_on(p, r));
        out.add(p, r, count * row);
        back.add(r, p, alone * row + (count - alone) * sum);
      }
    }
    return out.us(a) + back.us(a);
  }
  Hop across(places), within(places), within_back(places), across_back(places);
  for (int p = 0; p < ranks; ++p) {
    for (int n = 0; n < places.nodes(); ++n) {
      const int gate = places.gate_of(p, n);
      const auto count =
          static_cast<double>(topology == Topology::merge ? all.tokens(p) : all.tokens_on_node(p, n));
      const double alone = topology == Topology::merge ? 0 : static_cast<double>(all.alone_on_node(p, n));
      across.add(p, gate, count * row);
      across_back.add(gate, p, alone * row + (count - alone) * sum);
      for (const int r : places.members[static_cast<size_t>(n)]) {
        within.add(gate, r, static_cast<double>(all.tokens_on(p, r)) * row);
        within_back.add(r, gate, static_cast<double>(all.tokens_on(p, r)) * sum);
      }
    }
  }
  return across.us(a) + within.us(a) + within_back.us(a) + across_back.us(a);
}

Topology cheapest(const Gathered& all, const Places& places, const ir::Attributes& a) {
  Topology best = Topology::plain;
  double best_us = exchange_us(best, all, places, a);
  for (const Topology topology : {Topology::rank, Topology::node, Topology::merge}) {
    if (places.nodes() == 1 && topology != Topology::rank) continue;
    const double us = exchange_us(topology, all, places, a);
    if (us < best_us) {
      best = topology;
      best_us = us;
    }
  }
  return best;
}

/// Inside one node, to go by node is to go by rank.
Topology named(const std::string& word, const Places& places) {
  if (word == "plain") return Topology::plain;
  if (word == "rank" || places.nodes() == 1) return Topology::rank;
  HEDDLE_CHECK(word == "node" || word == "merge", "no exchange topology is named '{}'", word);
  return word == "node" ? Topology::node : Topology::merge;
}

void share_counts(const KernelCall& call) {
  const TensorView& counts = call.out[0];
  const ir::Attributes& a = call.op->attributes;
  Communicator& communicator = *call.communicator;
  int32_t* route = call.out[1].as<int32_t>();
  std::memset(route, 0, static_cast<size_t>(call.out[1].elements()) * sizeof(int32_t));
  const RoutingPlan plan(call.in[0], counts, call.out[1], a.integer("slices"));
  HEDDLE_CHECK(communicator.size() == plan.ranks, "an exchange among {} ranks on a communicator of {}", plan.ranks,
               communicator.size());
  const Places places(communicator);
  const SourceRows own(plan, plan.experts_Tk, plan.tokens);
  int32_t* sent = counts.as<int32_t>();
  Parcels parcels;
  for (int64_t r = 0; r < plan.ranks; ++r) {
    for (int64_t e = 0; e < plan.experts_each; ++e) {
      sent[r * plan.experts_each + e] = static_cast<int32_t>(own.of(r, e).size());
    }
    parcels.send(r, sent + r * plan.experts_each, plan.experts_each);
    parcels.receive(r, sent + (plan.ranks + r) * plan.experts_each, plan.experts_each);
  }
  const std::string& word = a.word("topology");
  if (word == "plain") return parcels.exchange(communicator);

  Gathered all(plan.ranks, places.nodes());
  int32_t* numbers = all.of(communicator.rank());
  *numbers++ = static_cast<int32_t>(plan.tokens);
  for (int64_t r = 0; r < plan.ranks; ++r) *numbers++ = static_cast<int32_t>(own.of(r).size());
  for (int64_t r = 0; r < plan.ranks; ++r) *numbers++ = static_cast<int32_t>(own.tokens_on(r).size());
  for (int n = 0; n < places.nodes(); ++n) *numbers++ = static_cast<int32_t>(own.tokens_on_node(places, n).size());
  const auto count_alone = [&](std::span<const int> ranks) {
    const std::vector<bool> alone = own.alone_on(ranks);
    return static_cast<int32_t>(std::count(alone.begin(), alone.end(), true));
  };
  for (int r = 0; r < plan.ranks; ++r) *numbers++ = count_alone({&r, 1});
  for (int n = 0; n < places.nodes(); ++n) *numbers++ = count_alone(places.members[static_cast<size_t>(n)]);
  for (int64_t r = 0; r < plan.ranks; ++r) {
    if (r == communicator.rank()) continue;
    parcels.send(r, all.of(communicator.rank()), all.each());
    parcels.receive(r, all.of(r), all.each());
  }
  parcels.exchange(communicator);

  const Topology topology = word == "auto" ? cheapest(all, places, a) : named(word, places);
  route[device::kRouteTopology] = static_cast<int32_t>(topology);
  for (int64_t r = 0; r < plan.ranks; ++r) route[device::kRouteTokens + r] = static_cast<int32_t>(all.tokens(r));
  if (topology != Topology::node && topology != Topology::merge) return;
  for (const int s : places.sources_of(places.self)) {
    route[device::kRoutePassing] += static_cast<int32_t>(all.tokens(s));
    for (const int r : places.members[static_cast<size_t>(places.own_node())]) {
      route[device::kRouteForwarded] += static_cast<int32_t>(all.tokens_on(s, r));
    }
  }
}

void counts_to_host(const KernelCall& call) {
  for (const size_t i : {size_t{0}, size_t{1}}) {
    std::memcpy(call.out[i].data, call.in[i].data, static_cast<size_t>(call.out[i].elements()) * sizeof(int32_t));
  }
  *call.out[2].as<int32_t>() = call.out[1].as<const int32_t>()[device::kRouteForwarded];
  const TensorView& n = call.out[0];
  const int64_t ranks = n.dim(1), experts = n.dim(2);
  const auto* received = n.as<const int32_t>() + ranks * experts;
  int32_t* offsets = call.out[3].as<int32_t>();
  offsets[0] = 0;
  for (int64_t e = 0; e < experts; ++e) {
    offsets[e + 1] = offsets[e];
    for (int64_t s = 0; s < ranks; ++s) offsets[e + 1] += received[s * experts + e];
  }
}

}  // namespace

const std::vector<Collective>& count_kernels() {
  static const std::vector<Collective> list{{"share_counts", share_counts, nullptr},
                                            {"counts_to_host", counts_to_host, nullptr}};
  return list;
}

int64_t received_rows(const TensorView& n) {
  const int64_t half = n.elements() / 2;
  return std::accumulate(n.as<const int32_t>() + half, n.as<const int32_t>() + 2 * half, int64_t{0});
}

int64_t counted_rows(size_t output, const TensorView& view) {
  switch (output) {
    case 0: return received_rows(view);
    case 1: return view.as<const int32_t>()[device::kRoutePassing];
    case 2: return *view.as<const int32_t>();
    default: return 0;
  }
}

}  // namespace heddle::comm

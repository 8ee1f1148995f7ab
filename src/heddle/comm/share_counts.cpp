// share_counts: how many rows each rank has for each expert of the group, and which topology the exchanges of this
// layer and microbatch take. counts_to_host: the host's copy, with the row counts that it needs.
//
// The choice is made on every rank from the same gathered numbers, so all make the same.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "heddle/base/error.h"
#include "heddle/comm/exchange_choice.h"
#include "heddle/comm/exchange_kernels.h"
#include "heddle/comm/parcels.h"
#include "heddle/comm/row_lists.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

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

  SourceCounts<int32_t> all(plan.ranks, places.nodes());
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

  const std::optional<Topology> named = topology_named(word, places);
  const Topology topology = named ? *named : cheapest(all, places, a);
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

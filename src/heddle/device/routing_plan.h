// The plan that the four exchanges of a MoE layer share for one microbatch: which experts each token chose, how
// many rows go where, and by which topology. It is made once, by share_counts and the forward dispatch; never
// changed afterwards.
//
// The plan is values of the program, so that it is accounted for and dies with its last reader; this is their
// reading. There are G ranks of the group (ep × slices, slices fastest), E experts, P = E ÷ ep experts a rank, k
// experts a token. T tokens are this rank's, S rows are received, Q tokens pass through this rank on their way to
// others of its node.
#pragma once

#include <cstdint>

#include "heddle/device/exchange_work.h"
#include "heddle/device/kernel_call.h"
#include "heddle/ir/topology.h"

namespace heddle::device {

struct RoutingPlan {
  RoutingPlan(const TensorView& experts, const TensorView& n, const TensorView& route, int64_t slices)
      : experts_Tk(experts.as<const int32_t>()),
        tokens(experts.dim(0)),
        top_k(experts.dim(1)),
        ranks(n.dim(1)),
        experts_each(n.dim(2)),
        slices(slices),
        counts_2GP(n.as<const int32_t>()),
        route(route.as<const int32_t>()) {}

  /// The expert in each slot of an exchange with `copies` slots a rank beside its own experts. The route ends with
  /// them.
  static const int32_t* experts_of_slots(const TensorView& route, int64_t slots) {
    return route.as<const int32_t>() + route.elements() - slots;
  }

  /// Rows that this rank sends to expert e of rank r; that it receives from rank s for its own expert e.
  int64_t sent(int64_t r, int64_t e) const { return counts_2GP[r * experts_each + e]; }
  int64_t received(int64_t s, int64_t e) const { return counts_2GP[(ranks + s) * experts_each + e]; }
  int64_t rows_here() const {
    int64_t rows = 0;
    for (int64_t i = ranks * experts_each; i < 2 * ranks * experts_each; ++i) rows += counts_2GP[i];
    return rows;
  }
  ir::Topology topology() const { return static_cast<ir::Topology>(route[kRouteTopology]); }
  bool over_nodes() const { return topology() == ir::Topology::node || topology() == ir::Topology::merge; }
  /// Tokens that rank r has. Not known where the topology is plain.
  int64_t tokens_of(int64_t r) const { return route[kRouteTokens + r]; }
  /// An entry of a list. Not known where the topology is plain.
  int64_t listed(RouteList list, int64_t r) const { return route[route_at(list, ranks) + r]; }

  const int32_t* experts_Tk;
  int64_t tokens, top_k, ranks, experts_each, slices;
  const int32_t* counts_2GP;
  const int32_t* route;
};

}  // namespace heddle::device

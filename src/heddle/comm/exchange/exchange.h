// The common part of the four ops that move experts' rows: how much each rank sends to each, and the lists of
// tokens and rows that both ways use. There: dispatch and combine_dgrad (dispatch.cpp). Back: combine and
// dispatch_dgrad (combine.cpp).
//
// The host knows from its copies of the counts how many tokens and rows go where, and no more. Which these are, the
// memory of the rows lists for itself (device/exchange_work.h, a RowWork's functions). Between two ranks rows
// travel in one piece, sums that go back in at most two; what arrives is then put in its place. Where the host
// reads that memory (RowWork::in_place), rows travel from where they lie to where they belong.
//
// With `room` the host does not know the counts either. Then what goes to a rank lies in a slot of that many rows,
// and slots travel whole (device/exchange_work.h, RowsInSlots). A host that reads the memory finds the counts
// there. With `rest` there is a second round: rows go there by rounds, and come home of both at once. Which ranks a
// round has, its route says (device::kAsked).
#pragma once

#include "heddle/comm/exchange/ends.h"
#include "heddle/comm/exchange/scratch.h"
#include "heddle/device/row_work.h"
#include "heddle/ir/listing.h"
#include "heddle/ir/rounds.h"
#include "heddle/ir/topology.h"

namespace heddle::comm {

/// True if a sum of one row is sent back as that row. It is where this is shorter, in another type than sums, and
/// where what crosses nodes need not be regular.
inline bool rows_go_back_alone(ir::Topology topology, Dtype rows) {
  return rows == Dtype::bf16 && (topology == ir::Topology::rank || topology == ir::Topology::node);
}

/// The type of gates and sums beside rows of this type.
inline Dtype wide_of(Dtype rows) { return rows == Dtype::f64 ? Dtype::f64 : Dtype::f32; }

/// The counts of the second round, of an op that brings rows of both rounds home; none for others.
inline ir::ValueId rest_counts_of(const ir::Op& op) {
  return ir::place_of("rest_counts", op.def->operands) < 0 ? ir::none : op.operand("rest_counts");
}

/// The sizes from a listing, or from a call. `lists`: where `experts` stands among the operands; then the counts,
/// the route and what is forwarded.
template <bool in_place, bool gates>
ExchangeSizes sizes_of(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const auto counted = [&](const char* name) { return rows.rows(op.operand(name)); };
  const ir::ValueId rest = rest_counts_of(op);
  const ir::ValueId experts = op.operand("experts");
  const ir::Value& x = listing.value(op.operand("rows"));
  const ir::Shape& n = listing.value(op.operand("counts")).shape;
  const int64_t k = listing.value(experts).shape.back().count, H = x.shape.back().count;
  return {.T = k == 0 ? 0 : listing.elements(experts, rows) / k,
          .k = k,
          .slices = op.attributes.integer("slices"),
          .G = n[1].count,
          .P = n[2].count,
          .Q = counted("route"),
          .S = std::max(counted("counts"), rest == ir::none || !in_place ? 0 : rows.rows(rest)),
          .F = counted("forwards"),
          .row_bytes = H * size_of(x.dtype),
          .sum_bytes = H * size_of(wide_of(x.dtype)),
          .gate_bytes = size_of(wide_of(x.dtype)),
          .plain = op.attributes.word("topology") == "plain",
          .in_place = in_place,
          .gates = gates,
          .room = in_place ? 0 : ir::room_of_round(op.attributes),
          .rest = in_place || rest == ir::none ? 0 : op.attributes.integer("rest")};
}

class Exchange {
 public:
  /// `lists`: where `experts` stands among the operands; behind it n, route, forwards and, but for dispatch, which
  /// makes them, the codes of rows and the experts of passing tokens. `gates`: as ExchangeSizes.
  Exchange(const device::KernelCall& call, size_t lists, bool gates);

 protected:
  using Topology = ir::Topology;

  /// Numbers of ranks and sources, to where the lists are made.
  void upload_places(const RouteLists& to) const;

  /// Tokens of this rank; tokens that leave from here for the ranks of experts.
  device::TokenRoutes own_routes(const RouteLists& room, bool by_node) const;
  device::TokenRoutes inner_routes(const RouteLists& room) const;

  /// Tokens by rank of experts; tokens of this rank by node; tokens that pass through here, as they came.
  void list_inner(const RouteLists& room) const;
  void list_outer(const RouteLists& room) const { list_by_node(room, own_routes(room, true)); }
  void list_passing(const RouteLists& room) const;

  /// Rows by rank and expert, without headers; and how those that arrive are numbered.
  /// Rows that leave, or that have arrived, in slots: the list's number of each, and the slot of each number,
  /// counted from `base`.
  device::RowsInSlots in_slots(const SlotLists& slots, const RowLists& rows, bool arrived, int32_t* slot_of_row,
                               int64_t base = 0) const;
  /// Exchanges what lies in slots, `bytes` each.
  void exchange_slots(const void* from, void* to, int64_t bytes) const;

  device::ListRows listing(const RouteLists& room, const RowLists& rows) const;
  device::PlaceRows placing(const RouteLists& room) const;

  const std::vector<int>& own_members() const { return places_.members[places_.own_node()]; }

  const device::KernelCall& call_;
  const device::RowWork& work_;
  device::RoutingPlan plan_;
  Places places_;
  Dtype dtype_, wide_;
  int64_t H_;
  const int32_t *n_, *route_;                // where the rows are
  const int32_t* expert_of_slot_ = nullptr;  // where slots are not the experts of their number
  int64_t own_each_;                         // experts of a rank
  int32_t *code_S_, *passing_Qk_;
  bool slotted_;   // the host does not know the counts
  bool by_round_;  // the route has the ranks to which rows go
  bool plain_, over_nodes_, marked_;
  ExchangeEnds ends_;
  ExchangeSizes size_;

 private:
  void list_by_node(const RouteLists& room, const device::TokenRoutes& routes) const;
};

}  // namespace heddle::comm

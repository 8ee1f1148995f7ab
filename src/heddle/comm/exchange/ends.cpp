#include "heddle/comm/exchange/ends.h"

namespace heddle::comm {

using device::RouteList;
using device::RoutingPlan;
using ir::Topology;

namespace {

int64_t rows_from(const RoutingPlan& plan, int64_t s) {
  int64_t rows = 0;
  for (int64_t e = 0; e < plan.experts_each; ++e) rows += plan.received(s, e);
  return rows;
}
int64_t rows_to(const RoutingPlan& plan, int64_t r) {
  int64_t rows = 0;
  for (int64_t e = 0; e < plan.experts_each; ++e) rows += plan.sent(r, e);
  return rows;
}

}  // namespace

ExchangeEnds::ExchangeEnds(const RoutingPlan& plan, const Places& places, bool marked) {
  for (Ends* ends : {&leave, &arrive}) ends->reserve(places.node.size());
  const auto add = [&](Ends& ends, int peer, int64_t rows, int64_t tokens, int64_t alone) {
    ends.peer.push_back(peer);
    ends.rows.push_back(rows);
    ends.many.push_back(tokens - (marked ? alone : 0));
    ends.alone.push_back(marked ? alone : 0);
  };
  const auto listed = [&](RouteList list, int64_t r) { return plan.listed(list, r); };
  if (!plan.over_nodes()) {
    const bool plain = plan.topology() == Topology::plain;
    sources = {places.self};
    for (int r = 0; r < static_cast<int>(plan.ranks); ++r) {
      const int64_t to = rows_to(plan, r), from = rows_from(plan, r);
      add(leave, r, to, plain ? to : listed(RouteList::leave, r), plain ? 0 : listed(RouteList::leave_alone, r));
      add(arrive, r, from, plain ? from : listed(RouteList::arrive, r),
          plain ? 0 : listed(RouteList::arrive_alone, r));
    }
    return;
  }
  sources = places.sources_of(places.self);
  for (const int member : places.members[places.own_node()]) {
    add(leave, member, listed(RouteList::leave_rows, member), listed(RouteList::leave, member),
        listed(RouteList::leave_alone, member));
    int64_t rows = 0, tokens = 0, alone = 0;
    for (const int s : places.sources_of(member)) {
      rows += rows_from(plan, s);
      tokens += listed(RouteList::arrive, s);
      alone += listed(RouteList::arrive_alone, s);
    }
    add(arrive, member, rows, tokens, alone);
  }
  for (int n = 0; n < places.nodes(); ++n) {
    add(out, places.gate_of(places.self, n), 0, listed(RouteList::out, n), listed(RouteList::out_alone, n));
  }
  for (const int s : sources) add(in, s, 0, listed(RouteList::in, s), listed(RouteList::in_alone, s));
}

void send_runs(PieceList& piece_list, const Ends& to, const std::vector<int64_t>& counts, const void* from,
               int64_t each) {
  const auto* at = static_cast<const std::byte*>(from);
  for (size_t i = 0; i < counts.size(); ++i) {
    piece_list.send(to.peer[i], static_cast<const void*>(at), counts[i] * each);
    at += counts[i] * each;
  }
}

void receive_runs(PieceList& piece_list, const Ends& from, const std::vector<int64_t>& counts, void* to,
                  int64_t each) {
  auto* at = static_cast<std::byte*>(to);
  for (size_t i = 0; i < counts.size(); ++i) {
    piece_list.receive(from.peer[i], static_cast<void*>(at), counts[i] * each);
    at += counts[i] * each;
  }
}

}  // namespace heddle::comm

#include "heddle/comm/exchange/exchange.h"

#include <algorithm>

#include "heddle/device/host_copies.h"

namespace heddle::comm {

using device::Alone;
using device::HostCopies;
using device::KernelCall;
using device::RouteList;
using device::TensorView;

namespace {

bool in_slots_of(const KernelCall& call) { return !call.row_work->in_place && call.op->attributes.has("room"); }

device::RoutingPlan plan_of(const KernelCall& call, size_t lists) {
  TensorView counts = call.in[lists + 1], route = call.in[lists + 2];
  if (in_slots_of(call)) {
    static int32_t known[device::kRouteTokens]{static_cast<int32_t>(ir::Topology::plain)};
    route.data = known;
  } else {
    counts = HostCopies::on_host(call, counts);
    route = HostCopies::on_host(call, route);
  }
  device::RoutingPlan plan(call.in[lists], counts, route, call.op->attributes.integer("slices"));
  HEDDLE_CHECK(call.communicator->size() == plan.ranks, "an exchange among {} ranks on a communicator of {}",
               plan.ranks, call.communicator->size());
  return plan;
}

}  // namespace

Exchange::Exchange(const KernelCall& call, size_t lists, bool gates)
    : call_(call),
      work_(*call.row_work),
      plan_(plan_of(call, lists)),
      places_(*call.communicator),
      dtype_(call.in[0].dtype),
      wide_(wide_of(dtype_)),
      H_(call.in[0].columns()),
      n_(call.in[lists + 1].as<const int32_t>()),
      route_(call.in[lists + 2].as<const int32_t>()),
      own_each_(plan_.experts_each - call.op->attributes.integer_or("copies", 0)),
      code_S_(lists + 4 < call.in.size() ? call.in[lists + 4].as<int32_t>() : call.out[2].as<int32_t>()),
      passing_Qk_(lists + 5 < call.in.size() ? call.in[lists + 5].as<int32_t>() : call.out[3].as<int32_t>()),
      slotted_(in_slots_of(call)),
      by_round_(call.op->attributes.has("rest") && (slotted_ || rest_counts_of(*call.op) == ir::none)),
      plain_(plan_.topology() == Topology::plain),
      over_nodes_(plan_.over_nodes()),
      marked_(rows_go_back_alone(plan_.topology(), dtype_)),
      ends_(slotted_ ? ExchangeEnds(places_) : ExchangeEnds(plan_, places_, marked_)),
      size_{.T = plan_.tokens,
            .k = plan_.top_k,
            .slices = plan_.slices,
            .G = plan_.ranks,
            .P = plan_.experts_each,
            .Q = plan_.route[device::kRoutePassing],
            .S = slotted_ ? plan_.ranks * ir::room_of_round(call.op->attributes) : plan_.rows_here(),
            .F = plan_.route[device::kRouteForwarded],
            .row_bytes = H_ * size_of(dtype_),
            .sum_bytes = H_ * size_of(wide_),
            .gate_bytes = size_of(wide_),
            .plain = call.op->attributes.word("topology") == "plain",
            .in_place = work_.in_place,
            .gates = gates,
            .room = slotted_ ? ir::room_of_round(call.op->attributes) : 0,
            .rest = slotted_ && rest_counts_of(*call.op) != ir::none ? call.op->attributes.integer("rest") : 0} {
  if (call.op->attributes.has("copies")) {
    expert_of_slot_ =
        device::RoutingPlan::experts_of_slots(call.in[lists + 2], plan_.ranks / plan_.slices * plan_.experts_each);
  }
  HEDDLE_CHECK(std::max(size_.S, size_.all_slots()) < (int64_t{1} << 31) / std::max<int64_t>(1, size_.leaves()),
               "{} rows received of tokens with {} experts", size_.S, size_.k);
}

void Exchange::upload_places(const RouteLists& to) const {
  std::vector<int32_t> numbers(to.numbers.size());
  const auto at = [&](std::span<int32_t> part) { return numbers.data() + (part.data() - to.numbers.data()); };
  for (int r = 0; r < size_.G; ++r) {
    at(to.node_of_G)[r] = places_.node[r];
    at(to.key_of_G)[r] = static_cast<int32_t>(places_.key_of(r));
    at(to.turn_G)[r] = r;
    at(to.every_G)[r] = r;
  }
  if (over_nodes_) {
    int32_t next = 0;
    for (const int member : own_members()) {
      for (const int source : places_.sources_of(member)) at(to.turn_G)[source] = next++;
    }
  }
  at(to.own_first)[1] = static_cast<int32_t>(size_.T);
  *at(to.own_node) = places_.own_node();
  int32_t* first = at(to.first_I);
  for (const int s : ends_.sources) {
    first[1] = first[0] + static_cast<int32_t>(over_nodes_ ? plan_.tokens_of(s) : size_.T);
    ++first;
  }
  std::copy(own_members().begin(), own_members().end(), at(to.members));
  work_.upload(to.numbers.data(), numbers.data(), std::ssize(numbers) * 4, call_.stream);
}

device::TokenRoutes Exchange::own_routes(const RouteLists& room, bool by_node) const {
  device::TokenRoutes r{};
  r.experts_Qk = plan_.experts_Tk;
  r.first_I = room.own_first.data();
  r.to_D = by_round_ ? route_ + device::route_at(device::kAsked, size_.G) : room.every_G.data();
  r.node_of_G = room.node_of_G.data();
  r.Q = size_.T;
  r.k = size_.k;
  r.I = 1;
  r.D = by_node ? places_.nodes() : size_.G;
  r.P = size_.P;
  r.slices = size_.slices;
  r.G = size_.G;
  r.by_node = by_node;
  return r;
}

device::TokenRoutes Exchange::inner_routes(const RouteLists& room) const {
  device::TokenRoutes r = own_routes(room, false);
  if (!over_nodes_) return r;
  r.experts_Qk = passing_Qk_;
  r.first_I = room.first_I.data();
  r.to_D = room.members.data();
  r.Q = size_.Q;
  r.I = std::ssize(ends_.sources);
  r.D = std::ssize(own_members());
  return r;
}

void Exchange::list_inner(const RouteLists& room) const {
  const Alone alone = !marked_ ? Alone::never : over_nodes_ ? Alone::on_node : Alone::on_rank;
  work_.list_tokens({.routes = inner_routes(room),
                     .alone = alone,
                     .all = false,
                     .place_DQ = room.place_DQ.data(),
                     .many_DI = room.many_DI.data(),
                     .alone_DI = room.alone_DI.data()},
                    call_.stream);
}

void Exchange::list_by_node(const RouteLists& room, const device::TokenRoutes& routes) const {
  work_.list_tokens({.routes = routes,
                     .alone = marked_ ? Alone::on_node : Alone::never,
                     .all = plan_.topology() == Topology::merge,
                     .place_DQ = room.outer_place.data(),
                     .many_DI = room.outer_many.data(),
                     .alone_DI = room.outer_alone.data()},
                    call_.stream);
}

void Exchange::list_passing(const RouteLists& room) const {
  device::TokenRoutes here = inner_routes(room);
  here.to_D = room.own_node.data();
  here.D = 1;
  here.by_node = true;
  list_by_node(room, here);
}

device::RowsInSlots Exchange::in_slots(const SlotLists& slots, const RowLists& rows, bool arrived,
                                       int32_t* slot_of_row, int64_t base) const {
  return {.n_GP = n_ + (arrived ? size_.G * size_.P : 0),
          .row_R = (arrived ? rows.row_of_arrival : rows.slot_of_R).data(),
          .row_of_slot = slots.row_of_slot.data(),
          .slot_of_row = slot_of_row,
          .G = size_.G,
          .P = size_.P,
          .room = size_.room,
          .first = size_.first(),
          .each = arrived ? 1 : size_.slices,
          .base = base};
}

// The rows of even loads, and then what goes beyond them.
void Exchange::exchange_slots(const void* from, void* to, int64_t bytes) const {
  int64_t at = 0;
  for (const int64_t rows : {size_.first(), size_.room - size_.first()}) {
    PieceList piece_list;
    for (int r = 0; r < size_.G; ++r) {
      piece_list.send(r, static_cast<const void*>(static_cast<const std::byte*>(from) + at), rows * bytes);
      piece_list.receive(r, static_cast<void*>(static_cast<std::byte*>(to) + at), rows * bytes);
      at += rows * bytes;
    }
    if (rows > 0) piece_list.exchange(*call_.communicator);
  }
}

device::ListRows Exchange::listing(const RouteLists& room, const RowLists& rows) const {
  device::ListRows list{};
  list.routes = inner_routes(room);
  list.offsets = rows.offsets.data();
  list.slot_of_R = rows.slot_of_R.data();
  list.row_of_Qks = rows.row_of_Qks.data();
  list.place_DQ = plain_ ? nullptr : room.place_DQ.data();
  list.many_DI = room.many_DI.data();
  list.alone_DI = room.alone_DI.data();
  list.L = size_.leaves();
  list.gate_words = size_.gate_bytes / 4;
  return list;
}

device::PlaceRows Exchange::placing(const RouteLists& room) const {
  device::PlaceRows place{};
  place.n_2GP = n_;
  place.turn_G = room.turn_G.data();
  if (!plain_) {
    place.arrive_G = route_ + device::route_at(RouteList::arrive, size_.G);
    place.arrive_alone_G = route_ + device::route_at(RouteList::arrive_alone, size_.G);
  }
  place.G = size_.G;
  place.P = size_.P;
  place.L = size_.leaves();
  place.gate_words = size_.gate_bytes / 4;
  place.marked = marked_;
  place.code_S = code_S_;
  return place;
}

}  // namespace heddle::comm

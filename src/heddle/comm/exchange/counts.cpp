// Kernels of the counts of rows. `share_counts` counts the rows that each rank has for each expert of the group. It
// chooses the topology of this layer's and microbatch's exchanges. `counts_to_host` makes the host's copy, with the
// row counts that it needs.
//
// The choice is made on every rank from the same gathered numbers, so all make the same. It is made where the
// counts are, so the host learns of it with them.
#include <numeric>

#include "heddle/base/error.h"
#include "heddle/comm/exchange/choice.h"
#include "heddle/comm/exchange/kernels.h"
#include "heddle/comm/exchange/piece_list.h"
#include "heddle/comm/exchange/scratch.h"
#include "heddle/device/row_work.h"

namespace heddle::comm {

namespace {

using device::Alone;
using device::KernelCall;
using device::TensorView;

struct CountScratch {
  CountScratch(Carver& room, int64_t G) {
    every_G = room.take<int32_t>(G);
    node_of_G = room.take<int32_t>(G);
    own_first = room.take<int32_t>(2);
    gate_GN = room.take<int32_t>(G * G);
    numbers = room.take<int32_t>(G * device::numbers_each(G, G));
  }
  std::span<int32_t> every_G, node_of_G, own_first, gate_GN, numbers;
};

/// Tokens of this rank by rank, as the memory of the call has them.
device::TokenRoutes routes_of(const KernelCall& call, const CountScratch& room) {
  const TensorView &experts = call.in[0], &counts = call.out[0];
  device::TokenRoutes routes{};
  routes.experts_Qk = experts.as<const int32_t>();
  routes.first_I = room.own_first.data();
  routes.to_D = room.every_G.data();
  routes.node_of_G = room.node_of_G.data();
  routes.Q = experts.dim(0);
  routes.k = experts.dim(1);
  routes.I = 1;
  routes.D = routes.G = counts.dim(1);
  routes.P = counts.dim(2);
  routes.slices = call.op->attributes.integer("slices");
  return routes;
}

/// Writes this rank's numbers of its rows (exchange_work.h); only how many there are where `nodes` is 0.
void count_own(const KernelCall& call, const device::TokenRoutes& routes, int64_t nodes, int32_t* own) {
  const int64_t G = routes.G;
  call.row_work->own_numbers(
      {.sent_GP = call.out[0].as<const int32_t>(), .numbers = own, .G = G, .P = routes.P, .T = routes.Q},
      call.stream);
  if (nodes == 0) return;
  device::ListTokens tokens{};
  tokens.routes = routes;
  const auto count_tokens = [&](Alone alone, int64_t first) {
    tokens.alone = alone;
    tokens.many_DI = own + first - 1;  // what is counted first stands at 1
    tokens.alone_DI = tokens.many_DI + tokens.routes.D;
    call.row_work->list_tokens(tokens, call.stream);
  };
  count_tokens(Alone::on_rank, 1 + G);
  count_tokens(Alone::on_node, 1 + 3 * G);
  tokens.routes.by_node = true;
  tokens.routes.D = nodes;
  count_tokens(Alone::on_node, 1 + 5 * G);
}

void choose_route(const KernelCall& call, const CountScratch& room, const Places& places) {
  const ir::Attributes& a = call.op->attributes;
  const auto G = static_cast<int>(places.node.size());
  std::vector<int32_t> gates;
  for (int r = 0; r < G; ++r) {
    for (int n = 0; n < places.nodes(); ++n) gates.push_back(places.gate_of(r, n));
  }
  call.row_work->upload(room.gate_GN.data(), gates.data(), std::ssize(gates) * 4, call.stream);
  device::ChooseRoute choose{};
  choose.numbers = room.numbers.data();
  choose.node_of_G = room.node_of_G.data();
  choose.gate_GN = room.gate_GN.data();
  choose.route = call.out[1].as<int32_t>();
  choose.G = G;
  choose.N = places.nodes();
  choose.self = places.self;
  choose.plain = a.word("topology") == "plain";
  const std::optional<ir::Topology> named = topology_named(a.word("topology"), places);
  choose.topology = named ? static_cast<int32_t>(*named) : -1;
  if (choose.topology < 0) choose.rates = rates_of(a);
  call.row_work->choose_route(choose, call.stream);
}

void share_counts(const KernelCall& call) {
  const device::RowWork& work = *call.row_work;
  const TensorView &counts = call.out[0], &route = call.out[1];
  Communicator& communicator = *call.communicator;
  const int64_t G = counts.dim(1), P = counts.dim(2);
  const bool plain = call.op->attributes.word("topology") == "plain";
  const TensorView placement = call.in.size() > 1 ? call.in[1] : TensorView{};
  const int64_t slots = placement ? placement.elements() : 0;
  HEDDLE_CHECK(communicator.size() == G && route.elements() == device::route_size(G, plain) + slots,
               "an exchange among {} ranks on a communicator of {}, route of {}", G, communicator.size(),
               route.elements());
  Carver carver(call.scratch);
  const CountScratch room(carver, G);
  const Places places(communicator);
  const auto upload = [&](std::span<int32_t> to, const std::vector<int32_t>& from) {
    work.upload(to.data(), from.data(), std::ssize(from) * 4, call.stream);
  };
  std::vector<int32_t> every(static_cast<size_t>(G));
  std::iota(every.begin(), every.end(), 0);
  upload(room.every_G, every);
  upload(room.node_of_G, {places.node.begin(), places.node.end()});
  upload(room.own_first, {0, static_cast<int32_t>(call.in[0].dim(0))});
  const device::TokenRoutes routes = routes_of(call, room);

  auto* sent = counts.as<int32_t>();
  device::ListRows count{};
  count.routes = routes;
  count.offsets = sent - 1;  // what is counted first stands at 1
  work.list_rows(count, call.stream);
  PieceList piece_list;
  for (int64_t r = 0; r < G; ++r) {
    piece_list.send(r, static_cast<const int32_t*>(sent + r * P), P);
    piece_list.receive(r, sent + (G + r) * P, P);
  }
  work.fill(route.data, 0, route.elements() * 4, call.stream);
  const int64_t each = device::numbers_each(G, places.nodes()), told = plain ? 1 + G : each;
  int32_t* const own = room.numbers.data() + communicator.rank() * each;
  count_own(call, routes, plain ? 0 : places.nodes(), own);
  for (int64_t r = 0; r < G; ++r) {
    if (r == communicator.rank()) continue;
    piece_list.send(r, static_cast<const int32_t*>(own), told);
    piece_list.receive(r, room.numbers.data() + r * each, told);
  }
  piece_list.exchange(communicator);
  choose_route(call, room, places);
  work.copy(route.as<int32_t>() + device::route_size(G, plain), placement.data, slots * 4, call.stream);
}

/// Copies the counts to the host. If the host does not read this memory, the executor makes its copy; nothing is
/// sent here, and this op has no communicator.
void counts_to_host(const KernelCall& call) {
  const device::RowWork& work = *call.row_work;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    work.copy(call.out[i].data, call.in[i].data, call.out[i].elements() * 4, call.stream);
  }
  const auto* route = call.in[1].as<const int32_t>();
  work.copy(call.out[2].data, route + device::kRouteForwarded, 4, call.stream);
  work.copy(call.out[4].data, route + device::kRouteMost, 4, call.stream);
  const TensorView& n = call.in[0];
  work.local_offsets(n.as<const int32_t>(), n.dim(1), n.dim(2), call.out[3].as<int32_t>(), call.stream);
}

/// Makes what counts_to_host makes, of a round. Without a second one, rows that find no room end the run here where
/// the host reads this memory; elsewhere the trainer learns of it as the step ends.
void room_for_counts(const KernelCall& call) {
  const device::RowWork& work = *call.row_work;
  const TensorView &n = call.in[0], &fitting = call.out[0], &beyond = call.out[5];
  const ir::Attributes& a = call.op->attributes;
  const int64_t G = n.dim(1), P = n.dim(2), room = a.integer("room");
  const int64_t asked = device::route_at(device::kAsked, G);
  counts_to_host(call);
  work.fit_room({.n_2GP = n.as<const int32_t>(),
                 .asked_G = call.in[1].as<const int32_t>() + asked,
                 .fitting_2GP = fitting.as<int32_t>(),
                 .to_G = call.out[1].as<int32_t>() + asked,
                 .beyond = beyond.as<int32_t>(),
                 .G = G,
                 .P = P,
                 .room = room,
                 .second = a.has("round")},
                call.stream);
  work.local_offsets(fitting.as<const int32_t>(), G, P, call.out[3].as<int32_t>(), call.stream);
  if (!work.in_place || a.has("rest")) return;
  if (const int64_t rows = received_rows(n); rows > G * room) {
    config_error(
        "moe.room_factor has room for {} rows of experts of layer {} on a rank, and {} came: {:.2f} times the "
        "factor has room for them; so has moe.second_round = true",
        G * room, call.op->layer, rows, static_cast<double>(rows) / static_cast<double>(G * room));
  }
}

int64_t counts_scratch(const ir::Listing&, const ir::Op& op, const ir::RowCounts&) {
  Carver room(nullptr);
  [[maybe_unused]] const CountScratch layout(room, op.attributes.integer("ranks"));
  return room.bytes();
}

}  // namespace

const std::vector<Collective>& count_kernels() {
  static const std::vector<Collective> list{{"share_counts", share_counts, counts_scratch},
                                            {"counts_to_host", counts_to_host, nullptr},
                                            {"room_for_counts", room_for_counts, nullptr}};
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
    case 2:
    case 4: return *view.as<const int32_t>();
    default: return 0;
  }
}

}  // namespace heddle::comm

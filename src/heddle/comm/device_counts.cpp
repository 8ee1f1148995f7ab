// share_counts and counts_to_host on the memory of a device. The topology is chosen there too, from the same
// gathered numbers on every rank: the host learns of it with the counts.
#include "heddle/comm/exchange_choice.h"
#include "heddle/comm/exchange_kernels.h"
#include "heddle/comm/parcels.h"
#include "heddle/comm/places.h"
#include "heddle/device/row_work.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

/// Scratch of share_counts among G ranks.
struct Scratch {
  Scratch(std::byte* base, int64_t G) {
    int64_t at = 0;
    const auto take = [&](int64_t count) {
      auto* place = reinterpret_cast<int32_t*>(base + at);
      at += (count * static_cast<int64_t>(sizeof(int32_t)) + 255) / 256 * 256;
      return place;
    };
    every_G = take(G);
    node_of_G = take(G);
    own_first = take(2);
    gate_GN = take(G * G);
    numbers = take(G * device::numbers_each(G, G));
    bytes = at;
  }
  int32_t *every_G, *node_of_G, *own_first, *gate_GN, *numbers;
  int64_t bytes;
};

void share_counts(const KernelCall& call) {
  const device::RowWork& work = device_work(call);
  const TensorView &experts = call.in[0], &counts = call.out[0], &route = call.out[1];
  const ir::Attributes& a = call.op->attributes;
  Communicator& communicator = *call.communicator;
  const int64_t G = counts.dim(1), P = counts.dim(2);
  const bool plain = a.word("topology") == "plain";
  HEDDLE_CHECK(communicator.size() == G && route.elements() == device::route_size(G, plain),
               "an exchange among {} ranks on a communicator of {}, route of {}", G, communicator.size(),
               route.elements());
  const Scratch room(call.scratch, G);
  const Places places(communicator);
  const auto upload = [&](int32_t* to, const std::vector<int32_t>& from) {
    work.upload(to, from.data(), std::ssize(from) * 4, call.stream);
  };
  std::vector<int32_t> every;
  for (int32_t r = 0; r < G; ++r) every.push_back(r);
  upload(room.every_G, every);
  upload(room.node_of_G, {places.node.begin(), places.node.end()});
  upload(room.own_first, {0, static_cast<int32_t>(experts.dim(0))});
  device::TokenRoutes routes{};
  routes.experts_Qk = experts.as<const int32_t>();
  routes.first_I = room.own_first;
  routes.to_D = room.every_G;
  routes.node_of_G = room.node_of_G;
  routes.Q = experts.dim(0);
  routes.k = experts.dim(1);
  routes.I = 1;
  routes.D = routes.G = G;
  routes.P = P;
  routes.slices = a.integer("slices");

  auto* sent = counts.as<int32_t>();
  device::ListRows count{};
  count.routes = routes;
  count.offsets = sent - 1;  // what is counted first stands at 1
  work.list_rows(count, call.stream);
  Parcels parcels;
  for (int64_t r = 0; r < G; ++r) {
    parcels.send(r, static_cast<const int32_t*>(sent + r * P), P);
    parcels.receive(r, sent + (G + r) * P, P);
  }
  work.fill(route.data, 0, route.elements() * 4, call.stream);
  if (plain) return parcels.exchange(communicator);

  const int64_t N = places.nodes(), each = device::numbers_each(G, N);
  int32_t* own = room.numbers + communicator.rank() * each;
  work.own_numbers({.sent_GP = sent, .numbers = own, .G = G, .P = P, .T = routes.Q}, call.stream);
  device::ListTokens tokens{};
  tokens.routes = routes;
  const auto count_tokens = [&](device::Alone alone, int64_t first) {
    tokens.alone = alone;
    tokens.many_DI = own + first - 1;
    tokens.alone_DI = tokens.many_DI + tokens.routes.D;
    work.list_tokens(tokens, call.stream);
  };
  count_tokens(device::Alone::on_rank, 1 + G);
  count_tokens(device::Alone::on_node, 1 + 3 * G);
  tokens.routes.by_node = true;
  tokens.routes.D = N;
  count_tokens(device::Alone::on_node, 1 + 5 * G);
  for (int64_t r = 0; r < G; ++r) {
    if (r == communicator.rank()) continue;
    parcels.send(r, static_cast<const int32_t*>(own), each);
    parcels.receive(r, room.numbers + r * each, each);
  }
  parcels.exchange(communicator);

  std::vector<int32_t> gates;
  for (int r = 0; r < G; ++r) {
    for (int n = 0; n < N; ++n) gates.push_back(places.gate_of(r, n));
  }
  upload(room.gate_GN, gates);
  device::ChooseRoute choose{};
  choose.numbers = room.numbers;
  choose.node_of_G = room.node_of_G;
  choose.gate_GN = room.gate_GN;
  choose.route = route.as<int32_t>();
  choose.G = G;
  choose.N = N;
  choose.self = communicator.rank();
  const std::optional<device::Topology> named = topology_named(a.word("topology"), places);
  choose.topology = named ? static_cast<int32_t>(*named) : -1;
  if (choose.topology < 0) {
    choose.row_bytes = static_cast<double>(a.integer("row_bytes"));
    choose.sum_bytes = static_cast<double>(a.integer("sum_bytes"));
    choose.within_bytes_per_us = a.number("within_bytes_per_us");
    choose.across_bytes_per_us = a.number("across_bytes_per_us");
    choose.within_latency_us = a.number("within_latency_us");
    choose.across_latency_us = a.number("across_latency_us");
  }
  work.choose_route(choose, call.stream);
}

/// The executor makes the host's copy; nothing is sent here, and this op has no communicator.
void counts_to_host(const KernelCall& call) {
  const device::RowWork& work = device_work(call);
  for (const size_t i : {size_t{0}, size_t{1}}) {
    work.copy(call.out[i].data, call.in[i].data, call.out[i].elements() * 4, call.stream);
  }
  work.copy(call.out[2].data, call.in[1].as<const int32_t>() + device::kRouteForwarded, 4, call.stream);
  const TensorView& n = call.in[0];
  work.local_offsets(n.as<const int32_t>(), n.dim(1), n.dim(2), call.out[3].as<int32_t>(), call.stream);
}

int64_t scratch(const ir::Stage&, const ir::Op& op, const ir::RowCounts&) {
  return Scratch(nullptr, op.attributes.integer("ranks")).bytes;
}

}  // namespace

const device::RowWork& device_work(const KernelCall& call) {
  HEDDLE_CHECK(call.row_work != nullptr, "'{}' on a device that has no work for rows", call.op->kind());
  return *call.row_work;
}

const std::vector<Collective>& device_count_kernels() {
  static const std::vector<Collective> list{{"share_counts", share_counts, scratch},
                                            {"counts_to_host", counts_to_host, nullptr}};
  return list;
}

}  // namespace heddle::comm

// The numbers that a rank sends to all others about its rows, and what it learns from theirs: the topology, and its
// own route.
#include <algorithm>

#include "heddle/comm/exchange/choice.h"
#include "heddle/comm/host/row_work.h"
#include "heddle/ir/topology.h"

namespace heddle::comm::host {

using device::ChooseRoute;
using device::RouteList;
using ir::Topology;

void own_numbers(const device::OwnNumbers& args, void*) {
  args.numbers[0] = static_cast<int32_t>(args.T);
  for (int64_t r = 0; r < args.G; ++r) {
    args.numbers[1 + r] = 0;
    for (int64_t e = 0; e < args.P; ++e) args.numbers[1 + r] += args.sent_GP[r * args.P + e];
  }
}

namespace {

/// The numbers that every rank knows of every source: device/exchange_work.h.
class Gathered {
 public:
  explicit Gathered(const ChooseRoute& args)
      : of_(args.numbers), G_(args.G), N_(args.N), each_(device::numbers_each(args.G, args.N)) {}
  int32_t tokens(int64_t p) const { return of_[p * each_]; }
  int32_t rows(int64_t p, int64_t r) const { return of_[p * each_ + 1 + r]; }
  int32_t alone(int64_t p, int64_t r) const { return of_[p * each_ + 1 + 2 * G_ + r]; }
  int32_t on(int64_t p, int64_t r) const { return of_[p * each_ + 1 + G_ + r] + alone(p, r); }
  /// Alone on their node, with the row at r.
  int32_t alone_there(int64_t p, int64_t r) const { return of_[p * each_ + 1 + 4 * G_ + r]; }
  int32_t alone_on_node(int64_t p, int64_t n) const { return of_[p * each_ + 1 + 5 * G_ + N_ + n]; }
  int32_t on_node(int64_t p, int64_t n) const { return of_[p * each_ + 1 + 5 * G_ + n] + alone_on_node(p, n); }

 private:
  const int32_t* of_;
  int64_t G_, N_, each_;
};

/// The gathered numbers as the choice reads them.
SourceCounts<int32_t> counts_of(const Gathered& all, int64_t G, int64_t N) {
  SourceCounts<int32_t> counts(G, N);
  for (int64_t p = 0; p < G; ++p) {
    int32_t* to = counts.of(p);
    *to++ = all.tokens(p);
    for (int64_t r = 0; r < G; ++r) *to++ = all.rows(p, r);
    for (int64_t r = 0; r < G; ++r) *to++ = all.on(p, r);
    for (int64_t n = 0; n < N; ++n) *to++ = all.on_node(p, n);
    for (int64_t r = 0; r < G; ++r) *to++ = all.alone(p, r);
    for (int64_t n = 0; n < N; ++n) *to++ = all.alone_on_node(p, n);
  }
  return counts;
}

}  // namespace

void choose_route(const ChooseRoute& args, void*) {
  const Gathered all(args);
  const int64_t G = args.G, me = args.self;
  std::fill_n(args.route, device::route_size(G, args.plain), 0);
  for (int64_t r = 0; r < G; ++r) {
    int32_t rows = 0;
    for (int64_t p = 0; p < G; ++p) rows += all.rows(p, r);
    args.route[device::kRouteMost] = std::max(args.route[device::kRouteMost], rows);
    if (args.plain) args.route[device::route_at(device::kAsked, G) + r] = static_cast<int32_t>((rows + G - 1) / G);
  }
  if (args.plain) return;
  const Places places(static_cast<int>(me), {args.node_of_G, args.node_of_G + G});
  const Topology topology = args.topology >= 0 ? static_cast<Topology>(args.topology)
                                               : cheapest(counts_of(all, G, args.N), places, args.rates);
  const bool merge = topology == Topology::merge, over_nodes = merge || topology == Topology::node;
  const int own_node = places.own_node();
  const auto put = [&](RouteList list, int64_t r, int32_t count) {
    args.route[device::route_at(list, G) + r] = count;
  };
  const auto add = [&](RouteList list, int64_t r, int32_t count) {
    args.route[device::route_at(list, G) + r] += count;
  };
  const std::vector<int> sources = over_nodes ? places.sources_of(places.self) : std::vector<int>{places.self};
  for (int64_t r = 0; r < G; ++r) {
    put(RouteList::tokens, r, all.tokens(r));
    put(RouteList::arrive, r, all.on(r, me));
    put(RouteList::arrive_alone, r, over_nodes ? all.alone_there(r, me) : all.alone(r, me));
    if (over_nodes && places.node[r] != own_node) continue;
    for (const int p : sources) {
      add(RouteList::leave, r, all.on(p, r));
      add(RouteList::leave_alone, r, over_nodes ? all.alone_there(p, r) : all.alone(p, r));
      add(RouteList::leave_rows, r, all.rows(p, r));
    }
  }
  args.route[device::kRouteTopology] = static_cast<int32_t>(topology);
  if (!over_nodes) return;
  for (int n = 0; n < places.nodes(); ++n) {
    put(RouteList::out, n, merge ? all.tokens(me) : all.on_node(me, n));
    put(RouteList::out_alone, n, merge ? 0 : all.alone_on_node(me, n));
  }
  int32_t passing = 0, forwarded = 0;
  for (const int p : sources) {
    put(RouteList::in, p, merge ? all.tokens(p) : all.on_node(p, own_node));
    put(RouteList::in_alone, p, merge ? 0 : all.alone_on_node(p, own_node));
    passing += all.tokens(p);
    for (const int r : places.members[own_node]) forwarded += all.on(p, r);
  }
  // Rows that come home by merge may be more: the host makes room for so many.
  const int32_t home = merge ? static_cast<int32_t>(args.N) * all.tokens(me) : 0;
  args.route[device::kRoutePassing] = passing;
  args.route[device::kRouteForwarded] = std::max(forwarded, home);
}

}  // namespace heddle::comm::host

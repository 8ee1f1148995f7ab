// Lists of the tokens and rows of an exchange, and the choice of its topology. See routing_kernels.h. A block scans
// the tokens of its source in order, so that lists are the same whatever runs beside it; nothing is added
// atomically.
#include "heddle/ir/topology.h"
#include "heddle/kernels/cuda/experts/routing_kernels.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

namespace {

using device::RouteList;
using device::TokenRoutes;
using ir::Topology;

/// Number of slices of a holder's experts that are at a rank, or on a node.
HEDDLE_DEVICE int slices_at(const TokenRoutes& r, int64_t holder, int32_t to, bool node) {
  if (!node) return to / r.slices == holder ? 1 : 0;
  int count = 0;
  for (int64_t s = 0; s < r.slices; ++s) count += r.node_of_G[holder * r.slices + s] == to ? 1 : 0;
  return count;
}

enum class Kind { absent, many, alone };

HEDDLE_DEVICE Kind kind_of(const device::ListTokens& args, int64_t q, int32_t to) {
  if (args.all) return Kind::many;
  const TokenRoutes& r = args.routes;
  int here = 0, on_node = 0;
  for (int64_t j = 0; j < r.k; ++j) {
    const int64_t holder = r.experts_Qk[q * r.k + j] / r.P;
    if (holder * r.slices >= r.G) continue;  // an expert without computation
    here += slices_at(r, holder, to, r.by_node);
    if (!r.by_node && args.alone == device::Alone::on_node) on_node += slices_at(r, holder, r.node_of_G[to], true);
  }
  if (here == 0) return Kind::absent;
  if (args.alone == device::Alone::never) return Kind::many;
  return (!r.by_node && args.alone == device::Alone::on_node ? on_node : here) == 1 ? Kind::alone : Kind::many;
}

HEDDLE_DEVICE int64_t place() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
HEDDLE_DEVICE int64_t step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

}  // namespace

HEDDLE_KERNEL void HEDDLE_BOUNDS(kListThreads) list_tokens(device::ListTokens args) {
  HEDDLE_SHARED(int, of_warps, kListThreads / kWarp);
  HEDDLE_SHARED(unsigned, votes, kListThreads / kWarp);
  const int64_t d = blockIdx.x, i = blockIdx.y, b = d * args.routes.I + i;
  const int32_t to = args.routes.to_D[d], first = args.routes.first_I[i], end = args.routes.first_I[i + 1];
  int many = 0, alone = 0;
  for (int64_t q = first + threadIdx.x; q < end; q += kListThreads) {
    const Kind kind = kind_of(args, q, to);
    many += kind == Kind::many ? 1 : 0;
    alone += kind == Kind::alone ? 1 : 0;
  }
  many = block_sum(many, of_warps);
  alone = block_sum(alone, of_warps);
  if (threadIdx.x == 0) {
    args.many_DI[b + 1] = many;
    args.alone_DI[b + 1] = alone;
  }
  if (args.place_DQ == nullptr) return;
  int next_many = 0, next_alone = many;
  for (int64_t from = first; from < end; from += kListThreads) {
    const int64_t q = from + threadIdx.x;
    const Kind kind = q < end ? kind_of(args, q, to) : Kind::absent;
    int all_many = 0, all_alone = 0;
    const int before_many = count_before(kind == Kind::many, votes, all_many);
    const int before_alone = count_before(kind == Kind::alone, votes, all_alone);
    if (q < end) {
      args.place_DQ[d * args.routes.Q + q] = kind == Kind::absent ? -1
                                             : kind == Kind::many ? next_many + before_many
                                                                  : next_alone + before_alone;
    }
    next_many += all_many;
    next_alone += all_alone;
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) tokens_of_places(device::TokensOfPlaces args) {
  for (int64_t at = place(); at < args.D * args.Q; at += step()) {
    const int32_t found = args.place_DQ[at];
    if (found < 0) continue;
    const int64_t d = at / args.Q, q = at % args.Q;
    int64_t i = 0;
    while (args.first_I[i + 1] <= q) ++i;
    const int64_t b = d * args.I + i;
    args.token_U[args.many_DI[b] + args.alone_DI[b] + found] =
        args.other_place_Q == nullptr ? static_cast<int32_t>(q)
                                      : args.other_many_I[i] + args.other_alone_I[i] + args.other_place_Q[q];
  }
}

HEDDLE_KERNEL void running_sums(RunningSumsArgs args) {
  if (place() > 0) return;
  int32_t sum = args.counts[0] = 0;
  for (int64_t i = 1; i <= args.count; ++i) args.counts[i] = sum += args.counts[i];
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kListThreads) count_slots(device::ListRows args) {
  HEDDLE_SHARED(int, of_warps, kListThreads / kWarp);
  const TokenRoutes& r = args.routes;
  const int64_t b = blockIdx.x, i = b / r.P % r.I;
  const int64_t expert = r.to_D[b / (r.I * r.P)] / r.slices * r.P + b % r.P;
  int count = 0;
  for (int64_t at = r.first_I[i] * r.k + threadIdx.x; at < r.first_I[i + 1] * r.k; at += kListThreads) {
    count += r.experts_Qk[at] == expert ? 1 : 0;
  }
  count = block_sum(count, of_warps);
  if (threadIdx.x == 0) args.offsets[b + 1] = count;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kListThreads) list_slots(device::ListRows args) {
  HEDDLE_SHARED(unsigned, votes, kListThreads / kWarp);
  const TokenRoutes& r = args.routes;
  const int64_t b = blockIdx.x, i = b / r.P % r.I, d = b / (r.I * r.P), end = r.first_I[i + 1] * r.k;
  const int64_t holder = r.to_D[d] / r.slices, slice = r.to_D[d] % r.slices, expert = holder * r.P + b % r.P;
  int32_t next = args.offsets[b];
  for (int64_t first = r.first_I[i] * r.k; first < end; first += kListThreads) {
    const int64_t slot = first + threadIdx.x;
    const bool mine = slot < end && r.experts_Qk[slot] == expert;
    int all = 0;
    const int32_t row = next + count_before(mine, votes, all);
    next += all;
    if (!mine) continue;
    args.slot_of_R[row] = static_cast<int32_t>(slot);
    args.row_of_Qks[slot * r.slices + slice] = row;
    if (args.header_R == nullptr) continue;
    int32_t* header = args.header_R + row * (args.gate_words + (args.place_DQ != nullptr ? 1 : 0));
    for (int64_t w = 0; w < args.gate_words; ++w) {
      header[w] = static_cast<const int32_t*>(args.g_Qk)[slot * args.gate_words + w];
    }
    if (args.place_DQ != nullptr) {
      const int64_t q = slot / r.k, list = d * r.I + i;
      const int32_t found = args.place_DQ[d * r.Q + q];
      int32_t earlier = 0;  // rows of the token there, by expert
      for (int64_t j = q * r.k; j < (q + 1) * r.k; ++j) {
        earlier += r.experts_Qk[j] / r.P == holder && r.experts_Qk[j] < expert ? 1 : 0;
      }
      const auto code = static_cast<int32_t>(found * args.L + earlier);
      header[args.gate_words] = found >= args.many_DI[list + 1] - args.many_DI[list] ? ~code : code;
    }
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kListThreads) place_rows(device::PlaceRows args) {
  HEDDLE_SHARED(int, of_warps, kListThreads / kWarp);
  const int64_t e = blockIdx.x, source = blockIdx.y, G = args.G, P = args.P;
  const int32_t turn = args.turn_G[source];
  const int32_t* received = args.n_2GP + G * P;
  int before = 0, arrived = 0, many = 0, alone = 0;
  for (int64_t i = threadIdx.x; i < G * P; i += kListThreads) {
    const int64_t s = i / P, x = i % P;
    if (x < e || (x == e && s < source)) before += received[i];
    if (args.turn_G[s] < turn || (s == source && x < e)) arrived += received[i];
  }
  if (args.arrive_G != nullptr) {
    for (int64_t s = threadIdx.x; s < G; s += kListThreads) {
      if (args.turn_G[s] >= turn) continue;
      const int apart = args.marked ? args.arrive_alone_G[s] : 0;
      many += args.arrive_G[s] - apart;
      alone += apart;
    }
  }
  before = block_sum(before, of_warps);
  arrived = block_sum(arrived, of_warps);
  many = block_sum(many, of_warps);
  alone = block_sum(alone, of_warps);
  const int own_many =
      args.arrive_G == nullptr ? 0 : args.arrive_G[source] - (args.marked ? args.arrive_alone_G[source] : 0);
  const int32_t count = received[source * P + e];
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kListThreads) {
    const int32_t row = before + i, arrival = arrived + i;
    if (args.row_of_arrival != nullptr) args.row_of_arrival[arrival] = row;
    int32_t code = 0;
    if (args.header_S != nullptr) {
      const int32_t* header = args.header_S + arrival * (args.gate_words + (args.arrive_G != nullptr ? 1 : 0));
      for (int64_t w = 0; w < args.gate_words; ++w) {
        static_cast<int32_t*>(args.g_S)[row * args.gate_words + w] = header[w];
      }
      if (args.arrive_G != nullptr) {
        code = header[args.gate_words];
        const auto first = static_cast<int32_t>((many + alone) * args.L);
        code = code < 0 ? ~(~code + first) : code + first;
        args.code_S[row] = code;
      }
    } else if (args.arrive_G != nullptr) {
      code = args.code_S[row];
    }
    const int32_t known = code < 0 ? ~code : code, token = known / static_cast<int32_t>(args.L);
    if (args.from_S != nullptr) args.from_S[row] = args.arrive_G == nullptr ? arrival : token;
    if (args.leaf_UL == nullptr) continue;
    args.leaf_UL[known] = row;
    args.key_UL[known] = static_cast<int32_t>(e);
    const int32_t in_list = token - many - alone;  // all rows of a token write the same
    args.to_U[token] = code < 0 ? ~(alone + in_list - own_many) : many + in_list;
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kListThreads) rows_in_slots(device::RowsInSlots args) {
  HEDDLE_SHARED(int, of_warps, kListThreads / kWarp);
  const int64_t rank = blockIdx.x;
  int before = 0, own = 0;
  for (int64_t i = threadIdx.x; i < (rank + 1) * args.P; i += kListThreads) {
    (i < rank * args.P ? before : own) += args.n_GP[i];
  }
  before = block_sum(before, of_warps);
  own = block_sum(own, of_warps);
  for (int64_t row = threadIdx.x; row < (own > args.room ? own : args.room); row += kListThreads) {
    const int64_t slot =
        device::place_in_slots(rank, row < args.room ? row : args.room - 1, args.G, args.room, args.first);
    const int32_t number = row < own ? args.row_R[before + row] : -1;
    if (row < args.room) args.row_of_slot[slot] = number;
    if (number >= 0 && args.slot_of_row != nullptr)
      args.slot_of_row[number * args.each + rank % args.each] = static_cast<int32_t>(args.base + slot);
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kListThreads) fit_room(device::FitRoom args) {
  HEDDLE_SHARED(int, of_warps, kListThreads / kWarp);
  const int64_t half = args.G * args.P;
  int beyond = 0;  // of what this rank gets
  for (int64_t r = threadIdx.x; r < args.G; r += kListThreads) {
    int64_t rows = 0;
    for (int64_t e = 0; e < args.P; ++e) rows += args.n_2GP[half + r * args.P + e];
    beyond += rows > args.room ? 1 : 0;
    args.to_G[r] = (args.asked_G[r] <= args.room) != args.second ? static_cast<int32_t>(r) : device::kNoRank;
  }
  beyond = block_sum(beyond, of_warps);
  for (int64_t i = threadIdx.x; i < 2 * half; i += kListThreads) {
    const bool there = (i < half ? args.asked_G[i / args.P] <= args.room : beyond == 0) != args.second;
    args.fitting_2GP[i] = there ? args.n_2GP[i] : 0;
  }
  if (threadIdx.x == 0) *args.beyond = beyond > 0 && !args.second ? -1 : 0;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) own_numbers(device::OwnNumbers args) {
  if (place() == 0) args.numbers[0] = static_cast<int32_t>(args.T);
  for (int64_t r = place(); r < args.G; r += step()) {
    int32_t rows = 0;
    for (int64_t e = 0; e < args.P; ++e) rows += args.sent_GP[r * args.P + e];
    args.numbers[1 + r] = rows;
  }
}

namespace {

/// The numbers that every rank knows of every source: device/exchange_work.h.
class Gathered {
 public:
  HEDDLE_DEVICE explicit Gathered(const device::ChooseRoute& args)
      : of_(args.numbers), G_(args.G), N_(args.N), each_(device::numbers_each(args.G, args.N)) {}
  HEDDLE_DEVICE int32_t tokens(int64_t p) const { return of_[p * each_]; }
  HEDDLE_DEVICE int32_t rows(int64_t p, int64_t r) const { return of_[p * each_ + 1 + r]; }
  HEDDLE_DEVICE int32_t alone(int64_t p, int64_t r) const { return of_[p * each_ + 1 + 2 * G_ + r]; }
  HEDDLE_DEVICE int32_t on(int64_t p, int64_t r) const { return of_[p * each_ + 1 + G_ + r] + alone(p, r); }
  /// Alone on their node, with the row at r.
  HEDDLE_DEVICE int32_t alone_there(int64_t p, int64_t r) const { return of_[p * each_ + 1 + 4 * G_ + r]; }
  HEDDLE_DEVICE int32_t alone_on_node(int64_t p, int64_t n) const { return of_[p * each_ + 1 + 5 * G_ + N_ + n]; }
  HEDDLE_DEVICE int32_t on_node(int64_t p, int64_t n) const {
    return of_[p * each_ + 1 + 5 * G_ + n] + alone_on_node(p, n);
  }

 private:
  const int32_t* of_;
  int64_t G_, N_, each_;
};

enum class Hop { plain, plain_back, rank, rank_back, across, across_back, merge, merge_back, within, within_back };

/// Bytes from rank a to rank b. Whole numbers: sums of them are exact in any order.
HEDDLE_DEVICE double bytes_of(const device::ChooseRoute& args, Hop hop, int64_t a, int64_t b) {
  const Gathered all(args);
  const int32_t here = args.node_of_G[a], there = args.node_of_G[b];
  const auto mixed = [&](double count, double alone) {
    return alone * args.rates.row_bytes + (count - alone) * args.rates.sum_bytes;
  };
  const bool back = hop == Hop::across_back || hop == Hop::merge_back;
  const bool gate = back ? args.gate_GN[b * args.N + here] == a : args.gate_GN[a * args.N + there] == b;
  switch (hop) {
    case Hop::plain: return all.rows(a, b) * args.rates.row_bytes;
    case Hop::plain_back: return all.rows(b, a) * args.rates.row_bytes;
    case Hop::rank: return all.on(a, b) * args.rates.row_bytes;
    case Hop::rank_back: return mixed(all.on(b, a), all.alone(b, a));
    case Hop::across: return gate ? all.on_node(a, there) * args.rates.row_bytes : 0;
    case Hop::across_back: return gate ? mixed(all.on_node(b, here), all.alone_on_node(b, here)) : 0;
    case Hop::merge: return gate ? all.tokens(a) * args.rates.row_bytes : 0;
    case Hop::merge_back: return gate ? all.tokens(b) * args.rates.sum_bytes : 0;
    default: break;
  }
  if (here != there) return 0;
  const int64_t by = hop == Hop::within ? a : b, holder = hop == Hop::within ? b : a;
  double tokens = 0;
  for (int64_t p = 0; p < args.G; ++p) {
    if (args.gate_GN[p * args.N + here] == by) tokens += all.on(p, holder);
  }
  return tokens * (hop == Hop::within ? args.rates.row_bytes : args.rates.sum_bytes);
}

/// The time of a hop: the busiest node's link to the others, and the busiest rank's to its neighbours, each in its
/// busier direction; they work side by side. For every thread the same.
HEDDLE_DEVICE double hop_us(const device::ChooseRoute& args, Hop hop, double* links) {
  for (int64_t a = threadIdx.x; a < args.G; a += blockDim.x) {
    double out_near = 0, in_near = 0, out_far = 0, in_far = 0;
    for (int64_t b = 0; b < args.G; ++b) {
      if (b == a) continue;
      const bool near = args.node_of_G[a] == args.node_of_G[b];
      const double out = bytes_of(args, hop, a, b), in = bytes_of(args, hop, b, a);
      (near ? out_near : out_far) += out;
      (near ? in_near : in_far) += in;
    }
    links[4 * a] = out_near;
    links[4 * a + 1] = in_near;
    links[4 * a + 2] = out_far;
    links[4 * a + 3] = in_far;
  }
  __syncthreads();
  double within = 0, across = 0;
  for (int64_t a = 0; a < args.G; ++a) {
    within = max(within, max(links[4 * a], links[4 * a + 1]));
  }
  for (int64_t n = 0; n < args.N; ++n) {
    double out = 0, in = 0;
    for (int64_t a = 0; a < args.G; ++a) {
      if (args.node_of_G[a] != n) continue;
      out += links[4 * a + 2];
      in += links[4 * a + 3];
    }
    across = max(across, max(out, in));
  }
  __syncthreads();
  return max(across == 0 ? 0.0 : args.rates.across_latency_us + across / args.rates.across_bytes_per_us,
             within == 0 ? 0.0 : args.rates.within_latency_us + within / args.rates.within_bytes_per_us);
}

HEDDLE_DEVICE Topology cheapest(const device::ChooseRoute& args, double* links) {
  Topology best = Topology::plain;
  double best_us = hop_us(args, Hop::plain, links) + hop_us(args, Hop::plain_back, links);
  const auto consider = [&](Topology topology, double us) {
    if (us >= best_us) return;
    best = topology;
    best_us = us;
  };
  consider(Topology::rank, hop_us(args, Hop::rank, links) + hop_us(args, Hop::rank_back, links));
  if (args.N == 1) return best;
  const double within = hop_us(args, Hop::within, links), back = hop_us(args, Hop::within_back, links);
  consider(Topology::node,
           hop_us(args, Hop::across, links) + within + back + hop_us(args, Hop::across_back, links));
  consider(Topology::merge, hop_us(args, Hop::merge, links) + within + back + hop_us(args, Hop::merge_back, links));
  return best;
}

}  // namespace

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) choose_route(device::ChooseRoute args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  const Gathered all(args);
  const int64_t G = args.G, me = args.self;
  if (threadIdx.x == 0) {
    int32_t most = 0;
    for (int64_t r = 0; r < G; ++r) {
      int32_t rows = 0;
      for (int64_t p = 0; p < G; ++p) rows += all.rows(p, r);
      most = max(most, rows);
    }
    args.route[device::kRouteMost] = most;
  }
  if (args.plain) {
    for (int64_t r = threadIdx.x; r < G; r += blockDim.x) {
      int32_t asked = 0;
      for (int64_t p = 0; p < G; ++p) asked = max(asked, all.rows(p, r));
      args.route[device::route_at(device::kAsked, G) + r] = asked;
    }
    return;
  }
  const Topology topology =
      args.topology >= 0 ? static_cast<Topology>(args.topology) : cheapest(args, reinterpret_cast<double*>(shared));
  const auto at = [&](RouteList list, int64_t r) -> int32_t& { return args.route[device::route_at(list, G) + r]; };
  const int32_t own_node = args.node_of_G[me];
  const bool over_nodes = topology == Topology::node || topology == Topology::merge;
  const bool merge = topology == Topology::merge;
  const auto passes = [&](int64_t p) { return over_nodes && args.gate_GN[p * args.N + own_node] == me; };
  for (int64_t r = threadIdx.x; r < G; r += blockDim.x) {
    at(RouteList::tokens, r) = all.tokens(r);
    at(RouteList::arrive, r) = all.on(r, me);
    at(RouteList::arrive_alone, r) = over_nodes ? all.alone_there(r, me) : all.alone(r, me);
    int32_t tokens = 0, alone = 0, rows = 0;
    if (!over_nodes) {
      tokens = all.on(me, r);
      alone = all.alone(me, r);
      rows = all.rows(me, r);
    } else if (args.node_of_G[r] == own_node) {
      for (int64_t p = 0; p < G; ++p) {
        if (!passes(p)) continue;
        tokens += all.on(p, r);
        alone += all.alone_there(p, r);
        rows += all.rows(p, r);
      }
    }
    at(RouteList::leave, r) = tokens;
    at(RouteList::leave_alone, r) = alone;
    at(RouteList::leave_rows, r) = rows;
    const bool out = over_nodes && r < args.N, in = passes(r);
    at(RouteList::out, r) = !out ? 0 : merge ? all.tokens(me) : all.on_node(me, r);
    at(RouteList::out_alone, r) = !out || merge ? 0 : all.alone_on_node(me, r);
    at(RouteList::in, r) = !in ? 0 : merge ? all.tokens(r) : all.on_node(r, own_node);
    at(RouteList::in_alone, r) = !in || merge ? 0 : all.alone_on_node(r, own_node);
  }
  if (threadIdx.x > 0) return;
  int32_t passing = 0, forwarded = 0;
  for (int64_t p = 0; p < G; ++p) {
    if (!passes(p)) continue;
    passing += all.tokens(p);
    for (int64_t r = 0; r < G; ++r) forwarded += args.node_of_G[r] == own_node ? all.on(p, r) : 0;
  }
  // Rows that come home by merge may be more: the host makes room for so many.
  const auto home = static_cast<int32_t>(args.N) * all.tokens(me);
  args.route[device::kRouteTopology] = static_cast<int32_t>(topology);
  args.route[device::kRoutePassing] = passing;
  args.route[device::kRouteForwarded] = merge && home > forwarded ? home : forwarded;
}

}  // namespace heddle::kernels::cuda

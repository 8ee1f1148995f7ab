// combine and dispatch_dgrad: for each token the sum over its experts (and their slices) of what they made of it.
// Every topology forms the same sum, in the tree of device/merge_tree.h. Leaves have the key (node, slot, expert),
// so that those of a rank, and those of a node, are summed among themselves first. Letters as in dispatch.cpp; D
// destinations, I sources.
#include <algorithm>
#include <bit>
#include <functional>

#include "heddle/comm/exchange/exchange.h"
#include "heddle/comm/exchange/kernels.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

/// Sums, then rows that go back alone, in one stretch of scratch.
struct Mixed {
  Mixed(std::span<std::byte> room, int64_t many, int64_t sum_bytes)
      : sums(room.data()), rows(room.data() + Carver::padded(many * sum_bytes)) {}
  std::byte *sums, *rows;
};

/// The operands of a second round of an op that has them.
class RestOperands {
 public:
  explicit RestOperands(const KernelCall& call)
      : call_(call), first_(static_cast<size_t>(ir::place_of("rest_rows", call.op->def->operands))) {}
  bool there() const { return first_ < call_.in.size() && call_.in[first_ + 2]; }
  const TensorView& rows() const { return call_.in[first_]; }
  const TensorView& beside() const { return call_.in[first_ + 1]; }  // gates, or their gradients
  const TensorView& counts() const { return call_.in[first_ + 2]; }
  const TensorView& route() const { return call_.in[first_ + 3]; }

 private:
  const KernelCall& call_;
  const size_t first_;
};

/// A call in one round in the place of two, where the host reads the counts. The rows of this rank are all of one
/// round, and counts of both are added.
class InOneRound {
 public:
  InOneRound(const KernelCall& call, size_t lists) : call_(call) {
    const RestOperands rest(call);
    if (!call.row_work->in_place || !rest.there()) return;
    in_.assign(call.in.begin(), call.in.end());
    TensorView& counts = in_[lists + 1];
    if (received_rows(rest.counts()) > 0) {
      in_[0] = rest.rows();
      in_[1] = rest.beside();
    }
    const auto *a = counts.as<const int32_t>(), *b = rest.counts().as<const int32_t>();
    counts_.resize(static_cast<size_t>(counts.elements()));
    std::transform(a, a + counts_.size(), b, counts_.begin(), std::plus());
    counts.data = counts_.data();
    call_.in = in_;
  }
  InOneRound(const InOneRound&) = delete;
  const KernelCall& call() const { return call_; }

 private:
  KernelCall call_;
  std::vector<TensorView> in_;
  std::vector<int32_t> counts_;
};

class Back : Exchange {
 public:
  /// The values that return: rows of experts and, in dispatch_dgrad, the gradients of their gates.
  struct Home {
    const void* g_S = nullptr;   // combine: gates that weigh the rows
    const void* g_Tk = nullptr;  // the same, at home
    const void* residual_TH = nullptr;
    const void* dg_S = nullptr;
    void* dg_Tk = nullptr;
  };

  Back(const KernelCall& call, size_t lists, bool numbers)
      : Exchange(call, lists, numbers), carver_(call.scratch), room_(carver_, size_) {
    upload_places(room_.routes);
  }

  void run(const std::byte* rows_SH, const Home& home, void* to_TH) {
    if (!slotted_) {
      place_arrivals();
      if (plain_ || size_.gates) work_.list_rows(listing(room_.routes, room_.rows), call_.stream);
    }
    PieceList piece_list;
    if (size_.gates && !slotted_) send_numbers(piece_list, home.dg_S);
    device::CombineSums sum{};
    sum.g_Tk = home.g_Tk;
    sum.residual_TH = home.residual_TH;
    sum.to_TH = to_TH;
    sum.H = H_;
    sum.key_of_G = room_.routes.key_of_G.data();
    sum.routes = own_routes(room_.routes, over_nodes_);
    if (plain_) {
      if (slotted_) {
        slots_home(rows_SH, home.dg_S, 0);
        if (size_.rest > 0) rest_home();
      } else {
        send_rows(piece_list, rows_SH);
        piece_list.exchange(*call_.communicator);
      }
      sum.row_of_Tks = room_.rows.row_of_Qks.data();
      sum.rows = room_.leaving.data();
      sum.keys_each = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(own_each_)));
      sum.expert_of_slot = expert_of_slot_;
      sum.own_each = own_each_;
    } else {
      const Mixed ranks = sums_of_ranks(rows_SH, home.g_S, piece_list);
      list_inner(room_.routes);
      const Mixed sums = over_nodes_ ? sums_of_nodes(ranks) : ranks;
      const RouteLists& lists = room_.routes;
      sum.place_DQ = (over_nodes_ ? lists.outer_place : lists.place_DQ).data();
      sum.many_DI = (over_nodes_ ? lists.outer_many : lists.many_DI).data();
      sum.alone_DI = (over_nodes_ ? lists.outer_alone : lists.alone_DI).data();
      sum.sums = sums.sums;
      sum.rows = sums.rows;
    }
    work_.combine_sums(dtype_, sum, call_.stream);
    if (size_.gates) sum_numbers(home.dg_Tk);
  }

 private:
  void place_arrivals() const {
    device::PlaceRows place = placing(room_.routes);
    if (plain_ || size_.gates) place.row_of_arrival = room_.rows.row_of_arrival.data();
    if (!plain_) {
      place.leaf_UL = room_.leaf_UL.data();
      place.key_UL = room_.key_UL.data();
      place.to_U = room_.to_U.data();
      work_.fill(room_.leaf_UL.data(), 0xff, ends_.arrive.tokens() * place.L * 4, call_.stream);
    }
    work_.place_rows(place, call_.stream);
  }

  void send_numbers(PieceList& piece_list, const void* dg_S) const {
    work_.gather(wide_, dg_S, 1, room_.rows.row_of_arrival.data(), 1, size_.S, room_.number_S.data(), call_.stream);
    send_runs(piece_list, ends_.arrive, ends_.arrive.rows, room_.number_S.data(), size_.gate_bytes);
    receive_runs(piece_list, ends_.leave, ends_.leave.rows, room_.number_R.data(), size_.gate_bytes);
  }
  void sum_numbers(void* dg_Tk) const {
    device::SlotNumbers numbers{};
    numbers.routes = own_routes(room_.routes, over_nodes_);
    numbers.from = over_nodes_ ? room_.home_numbers.data() : room_.number_R.data();
    numbers.row_of_Qks = over_nodes_ ? nullptr : room_.rows.row_of_Qks.data();
    numbers.to = dg_Tk;
    work_.slot_numbers(wide_, numbers, call_.stream);
  }

  /// The rows of a round come home behind `base` slots of others.
  void slots_home(const std::byte* rows_SH, const void* dg_S, int64_t base) const {
    const int32_t* rows = room_.slots.row_of_slot.data();
    place_arrivals();
    work_.list_rows(listing(room_.routes, room_.rows), call_.stream);
    work_.rows_in_slots(in_slots(room_.slots, room_.rows, true, nullptr), call_.stream);
    work_.gather(dtype_, rows_SH, H_, rows, 1, size_.slots(), room_.arriving.data(), call_.stream);
    if (size_.gates) work_.gather(wide_, dg_S, 1, rows, 1, size_.slots(), room_.number_S.data(), call_.stream);
    exchange_slots(room_.arriving.data(), room_.leaving.data() + base * size_.row_bytes, size_.row_bytes);
    if (size_.gates)
      exchange_slots(room_.number_S.data(), room_.number_R.data() + base * size_.gate_bytes, size_.gate_bytes);
    work_.rows_in_slots(in_slots(room_.slots, room_.rows, false, room_.rows.row_of_Qks.data(), base), call_.stream);
  }
  /// The second round's rows, with its counts and route.
  void rest_home() {
    const RestOperands rest(call_);
    const int64_t base = size_.slots();
    n_ = rest.counts().as<const int32_t>();
    route_ = rest.route().as<const int32_t>();
    size_.room = size_.rest;
    size_.S = size_.slots();
    slots_home(rest.rows().as<const std::byte>(), rest.beside().data, base);
  }

  /// Every row by itself. Those of a (source, expert) lie together, and so they go where nothing need be packed.
  void send_rows(PieceList& piece_list, const std::byte* rows_SH) const {
    if (!work_.in_place) {
      work_.gather(dtype_, rows_SH, H_, room_.rows.row_of_arrival.data(), 1, size_.S, room_.arriving.data(),
                   call_.stream);
      send_runs(piece_list, ends_.arrive, ends_.arrive.rows, room_.arriving.data(), size_.row_bytes);
      return receive_runs(piece_list, ends_.leave, ends_.leave.rows, room_.leaving.data(), size_.row_bytes);
    }
    int64_t arrival = 0, home = 0;
    for (int64_t r = 0; r < size_.G; ++r) {
      for (int64_t e = 0; e < size_.P; ++e) {
        const int64_t out = plan_.received(r, e) * size_.row_bytes, in = plan_.sent(r, e) * size_.row_bytes;
        if (out > 0) {
          const int64_t first = room_.rows.row_of_arrival[arrival];
          piece_list.send(r, static_cast<const void*>(rows_SH + first * size_.row_bytes), out);
        }
        piece_list.receive(r, static_cast<void*>(room_.leaving.data() + home), in);
        arrival += plan_.received(r, e);
        home += in;
      }
    }
  }

  void mixed_runs(PieceList& piece_list, const Ends& to, const Mixed& from, const Ends& source,
                  const Mixed& into) const {
    send_runs(piece_list, to, to.many, from.sums, size_.sum_bytes);
    receive_runs(piece_list, source, source.many, into.sums, size_.sum_bytes);
    send_runs(piece_list, to, to.alone, from.rows, size_.row_bytes);
    receive_runs(piece_list, source, source.alone, into.rows, size_.row_bytes);
  }

  /// Sums of arrived tokens over the experts here, to where they left from. Ends `parcels`.
  Mixed sums_of_ranks(const std::byte* rows_SH, const void* g_S, PieceList& piece_list) const {
    const Mixed here(room_.arriving, Ends::sum(ends_.arrive.many), size_.sum_bytes);
    const Mixed there(room_.leaving, Ends::sum(ends_.leave.many), size_.sum_bytes);
    work_.sum_tokens(dtype_,
                     {.rows_SH = rows_SH,
                      .g_S = g_S,
                      .leaf_UL = room_.leaf_UL.data(),
                      .key_UL = room_.key_UL.data(),
                      .to_U = room_.to_U.data(),
                      .sums = here.sums,
                      .alone = here.rows,
                      .U = ends_.arrive.tokens(),
                      .L = size_.leaves(),
                      .H = H_},
                     call_.stream);
    mixed_runs(piece_list, ends_.arrive, here, ends_.leave, there);
    piece_list.exchange(*call_.communicator);
    return there;
  }

  /// Sums of ranks to sums of the node, and those home.
  Mixed sums_of_nodes(const Mixed& ranks) const {
    const Mixed here(room_.staged_QH, Ends::sum(ends_.in.many), size_.sum_bytes);
    const Mixed home(room_.home_UH, Ends::sum(ends_.out.many), size_.sum_bytes);
    list_passing(room_.routes);
    work_.sum_node(dtype_,
                   {.routes = inner_routes(room_.routes),
                    .place_DQ = room_.routes.place_DQ.data(),
                    .many_DI = room_.routes.many_DI.data(),
                    .alone_DI = room_.routes.alone_DI.data(),
                    .sums = ranks.sums,
                    .alone = ranks.rows,
                    .to_place_Q = room_.routes.outer_place.data(),
                    .to_many_I = room_.routes.outer_many.data(),
                    .to_alone_I = room_.routes.outer_alone.data(),
                    .to_sums = here.sums,
                    .to_alone = here.rows,
                    .H = H_,
                    .node = places_.own_node()},
                   call_.stream);
    PieceList piece_list;
    if (size_.gates) spread_numbers(piece_list);
    mixed_runs(piece_list, ends_.in, here, ends_.out, home);
    piece_list.exchange(*call_.communicator);
    list_outer(room_.routes);
    return home;
  }
  /// Numbers go home as one a (token, slot, slice), so that what crosses is regular.
  void spread_numbers(PieceList& piece_list) const {
    work_.slot_numbers(wide_,
                       {.routes = inner_routes(room_.routes),
                        .from = room_.number_R.data(),
                        .row_of_Qks = room_.rows.row_of_Qks.data(),
                        .to = room_.spread_numbers.data(),
                        .spread = true,
                        .node = places_.own_node()},
                       call_.stream);
    const int64_t slots = size_.k * size_.slices;
    std::vector<int64_t> sent;
    for (const int source : ends_.in.peer) sent.push_back(plan_.tokens_of(source) * slots);
    const std::vector<int64_t> received(ends_.out.peer.size(), size_.T * slots);
    send_runs(piece_list, ends_.in, sent, room_.spread_numbers.data(), size_.gate_bytes);
    receive_runs(piece_list, ends_.out, received, room_.home_numbers.data(), size_.gate_bytes);
  }

  Carver carver_;
  BackScratch room_;
};

/// e, g_rows, g, experts, n, …, residual? -> c.
void combine(const KernelCall& rounds) {
  const InOneRound one(rounds, 3);
  const KernelCall& call = one.call();
  Back::Home home;
  home.g_S = call.in[1].data;
  home.g_Tk = call.in[2].data;
  if (call.in.size() > 9) home.residual_TH = call.in[9].data;
  Back(call, 3, false).run(call.in[0].as<const std::byte>(), home, call.out[0].data);
}
/// dq, dg_rows, experts, n, … -> dx, dg.
void dispatch_dgrad(const KernelCall& rounds) {
  const InOneRound one(rounds, 2);
  const KernelCall& call = one.call();
  Back::Home home;
  home.dg_S = call.in[1].data;
  home.dg_Tk = call.out[1].data;
  Back(call, 2, true).run(call.in[0].as<const std::byte>(), home, call.out[0].data);
}

template <bool in_place, bool gates>
int64_t combine_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return scratch_bytes_of<BackScratch>(sizes_of<in_place, gates>(listing, op, rows));
}

}  // namespace

const std::vector<Collective>& back_kernels(bool in_place) {
  static const std::vector<Collective> placed{{"combine", combine, combine_scratch<true, false>},
                                              {"dispatch_dgrad", dispatch_dgrad, combine_scratch<true, true>}};
  static const std::vector<Collective> packed{{"combine", combine, combine_scratch<false, false>},
                                              {"dispatch_dgrad", dispatch_dgrad, combine_scratch<false, true>}};
  return in_place ? placed : packed;
}

}  // namespace heddle::comm

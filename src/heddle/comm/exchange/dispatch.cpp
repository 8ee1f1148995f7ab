// dispatch and combine_dgrad: rows of tokens to the ranks of their experts, where they lie by (expert, source,
// token). T tokens, k experts a token, Q tokens that pass through here, R rows by (rank, source, expert, token), S
// rows received, U tokens that leave or arrive.
#include <algorithm>

#include "heddle/comm/exchange/exchange.h"
#include "heddle/comm/exchange/kernels.h"

namespace heddle::comm {

namespace {

using device::KernelCall;

/// One way there. Ahead of the rows dispatch sends what they are: gates, and the tokens that the rows belong to.
/// These are the codes that all later exchanges of the same rows use.
class There : Exchange {
 public:
  There(const KernelCall& call, size_t lists, bool gates)
      : Exchange(call, lists, gates), carver_(call.scratch), room_(carver_, size_) {
    upload_places(room_.routes);
  }

  /// Gates go from g_Tk to g_S.
  void run(const std::byte* x_TH, std::byte* to_SH, const void* g_Tk, void* g_S) {
    if (slotted_) return run_in_slots(x_TH, to_SH, g_Tk, g_S);
    const bool tells = size_.gates;
    if (tells && over_nodes_) {
      tell_nodes(g_Tk);
      g_Tk = room_.gates_Qk.data();
    }
    PieceList piece_list;
    if (over_nodes_) pass_on(piece_list, x_TH);
    list_leaving(g_Tk);
    if (tells) headers(piece_list);
    bool told = !tells;
    // Rows that go to their places need to know them; tokens that pass through here come before they go on.
    if (over_nodes_ || (tells && work_.in_place && !plain_)) {
      piece_list.exchange(*call_.communicator);
      piece_list = {};
      told = true;
    }
    if (told || (plain_ && work_.in_place)) place_arrivals(tells && told, g_S);
    send(piece_list, ends_.leave, over_nodes_ ? room_.staged_QH.data() : x_TH,
         plain_ ? room_.rows.slot_of_R.data() : room_.token_U.data(), plain_ ? size_.k : 1);
    receive(piece_list, ends_.arrive, to_SH, work_.in_place ? in_place_U() : nullptr);
    piece_list.exchange(*call_.communicator);
    if (!told) place_arrivals(true, g_S);
    spread(to_SH);
  }

 private:
  void run_in_slots(const std::byte* x_TH, std::byte* to_SH, const void* g_Tk, void* g_S) const {
    const std::span<int32_t> rows = room_.slots.row_of_slot, from_S = room_.from_S;
    work_.list_rows(listing(room_.routes, room_.rows), call_.stream);
    work_.rows_in_slots(in_slots(room_.slots, room_.rows, false, nullptr), call_.stream);
    work_.gather(dtype_, x_TH, H_, rows.data(), size_.k, size_.slots(), room_.leaving.data(), call_.stream);
    if (size_.gates)
      work_.gather(wide_, g_Tk, 1, rows.data(), 1, size_.slots(), room_.header_R.data(), call_.stream);
    exchange_slots(room_.leaving.data(), room_.arriving.data(), size_.row_bytes);
    if (size_.gates) exchange_slots(room_.header_R.data(), room_.header_S.data(), size_.gate_bytes);
    device::PlaceRows place = placing(room_.routes);
    place.row_of_arrival = room_.rows.row_of_arrival.data();
    work_.place_rows(place, call_.stream);
    work_.fill(from_S.data(), 0xff, size_.S * 4, call_.stream);
    work_.rows_in_slots(in_slots(room_.slots, room_.rows, true, from_S.data()), call_.stream);
    work_.gather(dtype_, room_.arriving.data(), H_, from_S.data(), 1, size_.S, to_SH, call_.stream);
    if (size_.gates) work_.gather(wide_, room_.header_S.data(), 1, from_S.data(), 1, size_.S, g_S, call_.stream);
  }

  /// Experts and gates of all tokens to every node, so that the ranks that pass rows on know what was chosen.
  void tell_nodes(const void* g_Tk) const {
    const int64_t own = size_.T * size_.k;
    PieceList piece_list;
    for (const int gate : ends_.out.peer) {
      piece_list.send(gate, plan_.experts_Tk, own);
      piece_list.send(gate, g_Tk, own * size_.gate_bytes);
    }
    int64_t at = 0;
    for (const int source : ends_.in.peer) {
      const int64_t count = plan_.tokens_of(source) * size_.k;
      piece_list.receive(source, passing_Qk_ + at, count);
      piece_list.receive(source, static_cast<void*>(room_.gates_Qk.data() + at * size_.gate_bytes),
                         count * size_.gate_bytes);
      at += count;
    }
    piece_list.exchange(*call_.communicator);
  }

  /// Rows across nodes: those with an expert there, or all.
  void pass_on(PieceList& piece_list, const std::byte* x_TH) const {
    if (plan_.topology() == Topology::merge) {
      for (const int gate : ends_.out.peer) {
        piece_list.send(gate, static_cast<const void*>(x_TH), size_.T * size_.row_bytes);
      }
      receive_runs(piece_list, ends_.in, ends_.in.all(), room_.staged_QH.data(), size_.row_bytes);
      return;
    }
    list_outer(room_.routes);
    list_tokens(own_routes(room_.routes, true), room_.routes.outer_place, room_.routes.outer_many,
                room_.routes.outer_alone, false);
    send(piece_list, ends_.out, x_TH, room_.token_U.data(), 1);
    if (work_.in_place) {
      receive(piece_list, ends_.in, room_.staged_QH.data(), nullptr);
    } else {
      receive_runs(piece_list, ends_.in, ends_.in.all(), room_.staged_QH.data(), size_.row_bytes);
    }
  }

  /// Lists what leaves from here for the ranks of experts: tokens, and rows where these go, or say whose they are.
  void list_leaving(const void* g_Qk) const {
    if (!plain_) {
      list_inner(room_.routes);
      if (over_nodes_) list_passing(room_.routes);
      list_tokens(inner_routes(room_.routes), room_.routes.place_DQ, room_.routes.many_DI, room_.routes.alone_DI,
                  over_nodes_);
    }
    if (!plain_ && !size_.gates) return;
    device::ListRows rows = listing(room_.routes, room_.rows);
    rows.g_Qk = g_Qk;
    rows.header_R = size_.gates ? reinterpret_cast<int32_t*>(room_.header_R.data()) : nullptr;
    work_.list_rows(rows, call_.stream);
  }
  /// `passing`: tokens by where they lie among those that pass through here.
  void list_tokens(const device::TokenRoutes& routes, std::span<const int32_t> place, std::span<const int32_t> many,
                   std::span<const int32_t> alone, bool passing) const {
    work_.tokens_of_places({.place_DQ = place.data(),
                            .many_DI = many.data(),
                            .alone_DI = alone.data(),
                            .first_I = routes.first_I,
                            .other_place_Q = passing ? room_.routes.outer_place.data() : nullptr,
                            .other_many_I = room_.routes.outer_many.data(),
                            .other_alone_I = room_.routes.outer_alone.data(),
                            .token_U = room_.token_U.data(),
                            .D = routes.D,
                            .Q = routes.Q,
                            .I = routes.I},
                           call_.stream);
  }

  void headers(PieceList& piece_list) const {
    const int64_t each = size_.gate_bytes + (plain_ ? 0 : 4);
    send_runs(piece_list, ends_.leave, ends_.leave.rows, room_.header_R.data(), each);
    receive_runs(piece_list, ends_.arrive, ends_.arrive.rows, room_.header_S.data(), each);
  }
  void place_arrivals(bool with_headers, void* g_S) const {
    device::PlaceRows place = placing(room_.routes);
    place.header_S = with_headers ? reinterpret_cast<const int32_t*>(room_.header_S.data()) : nullptr;
    place.g_S = g_S;
    if (plain_ && work_.in_place) {
      place.row_of_arrival = room_.rows.row_of_arrival.data();
    } else {
      place.from_S = room_.from_S.data();
    }
    work_.place_rows(place, call_.stream);
    if (!plain_ && work_.in_place) chain_rows();
  }
  void chain_rows() const {
    std::fill_n(room_.first_U.begin(), ends_.arrive.tokens(), -1);
    for (int64_t s = size_.S - 1; s >= 0; --s) {
      int32_t& first = room_.first_U[room_.from_S[s]];
      room_.next_S[s] = first;
      first = static_cast<int32_t>(s);
    }
  }

  /// Row index_u ÷ each of `from`, in order, to each end.
  void send(PieceList& piece_list, const Ends& to, const std::byte* from, const int32_t* index_U,
            int64_t each) const {
    const std::vector<int64_t> counts = to.all();
    if (!work_.in_place) {
      work_.gather(dtype_, from, H_, index_U, each, to.tokens(), room_.leaving.data(), call_.stream);
      return send_runs(piece_list, to, counts, room_.leaving.data(), size_.row_bytes);
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      for (const int32_t* end = index_U + counts[i]; index_U < end; ++index_U) {
        piece_list.send(to.peer[i], static_cast<const void*>(from + *index_U / each * size_.row_bytes),
                        size_.row_bytes);
      }
    }
  }
  /// Receives the u-th row into row place_u of `to`, or into row u without places. Where the host does not read
  /// this memory, it goes to where it is spread from.
  void receive(PieceList& piece_list, const Ends& from, std::byte* to, const int32_t* place_U) const {
    const std::vector<int64_t> counts = from.all();
    if (!work_.in_place) {
      return receive_runs(piece_list, from, counts, room_.arriving.data(), size_.row_bytes);
    }
    int64_t u = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      for (const int64_t end = u + counts[i]; u < end; ++u) {
        const int64_t row = place_U == nullptr ? u : place_U[u];
        piece_list.receive(from.peer[i], static_cast<void*>(to + row * size_.row_bytes), size_.row_bytes);
      }
    }
  }
  const int32_t* in_place_U() const { return plain_ ? room_.rows.row_of_arrival.data() : room_.first_U.data(); }
  /// Spreads each arrived row to all rows that are of it.
  void spread(std::byte* to_SH) const {
    if (!work_.in_place) {
      work_.gather(dtype_, room_.arriving.data(), H_, room_.from_S.data(), 1, size_.S, to_SH, call_.stream);
    } else if (!plain_) {
      for (const int32_t first : room_.first_U.first(static_cast<size_t>(ends_.arrive.tokens()))) {
        for (int32_t s = room_.next_S[first]; s >= 0; s = room_.next_S[s]) {
          work_.copy(to_SH + s * size_.row_bytes, to_SH + first * size_.row_bytes, size_.row_bytes, call_.stream);
        }
      }
    }
  }

  Carver carver_;
  ThereScratch room_;
};

/// x, g, experts, n, … -> q, g_rows, codes of rows, experts of passing tokens.
void dispatch(const KernelCall& call) {
  There(call, 2, true)
      .run(call.in[0].as<const std::byte>(), call.out[0].as<std::byte>(), call.in[1].data, call.out[1].data);
}
/// dc, experts, n, … -> dr.
void combine_dgrad(const KernelCall& call) {
  There(call, 1, false).run(call.in[0].as<const std::byte>(), call.out[0].as<std::byte>(), nullptr, nullptr);
}

template <bool in_place, bool gates>
int64_t dispatch_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return scratch_bytes_of<ThereScratch>(sizes_of<in_place, gates>(listing, op, rows));
}

}  // namespace

const std::vector<Collective>& there_kernels(bool in_place) {
  static const std::vector<Collective> placed{{"dispatch", dispatch, dispatch_scratch<true, true>},
                                              {"combine_dgrad", combine_dgrad, dispatch_scratch<true, false>}};
  static const std::vector<Collective> packed{{"dispatch", dispatch, dispatch_scratch<false, true>},
                                              {"combine_dgrad", combine_dgrad, dispatch_scratch<false, false>}};
  return in_place ? placed : packed;
}

}  // namespace heddle::comm

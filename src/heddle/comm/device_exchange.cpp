// Rows to their experts and back on the memory of a device: dispatch, collect and their gradients, in every
// topology.
//
// The host knows from its copies of the counts how many tokens and rows go where, and no more: which these are, the
// device lists for itself (device/exchange_work.h). Between two ranks rows travel in one piece, sums that go back
// in at most two; what arrives is then put in its place. T tokens, k experts a token, Q tokens that pass through
// here, R rows by (rank, source, expert, token), S rows received, U tokens received, G ranks, P experts on each.
#include <algorithm>
#include <bit>
#include <numeric>

#include "heddle/comm/exchange_kernels.h"
#include "heddle/comm/parcels.h"
#include "heddle/comm/row_lists.h"
#include "heddle/device/host_copies.h"
#include "heddle/device/row_work.h"

namespace heddle::comm {

namespace {

using device::Alone;
using device::HostCopies;
using device::KernelCall;
using device::RouteList;
using device::TensorView;

int64_t padded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// Sums, then rows that go back alone, in one stretch of scratch.
struct Mixed {
  Mixed(std::byte* base, int64_t sums, int64_t H)
      : sums(reinterpret_cast<float*>(base)), rows(base + padded(sums * H * static_cast<int64_t>(sizeof(float)))) {}
  float* sums;
  std::byte* rows;
};

/// How much goes to, or comes from, each peer.
struct Ends {
  std::vector<int> peer;
  std::vector<int64_t> rows, many, alone;
  static int64_t sum(const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  }
  int64_t tokens() const { return sum(many) + sum(alone); }
  std::vector<int64_t> all() const {
    std::vector<int64_t> counts(many);
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += alone[i];
    return counts;
  }
};

/// A call with its lists: `experts` at in[lists], then n, route, forwards, and but for dispatch the codes of rows
/// and the experts of passing tokens.
class Exchange {
 public:
  Exchange(const KernelCall& call, size_t lists, const TensorView& rows)
      : call_(call),
        work_(device_work(call)),
        plan_(call.in[lists], HostCopies::on_host(call, call.in[lists + 1]),
              HostCopies::on_host(call, call.in[lists + 2]), call.op->attributes.integer("slices")),
        places_(*call.communicator),
        dtype_(rows.dtype),
        H_(rows.columns()),
        n_(call.in[lists + 1].as<const int32_t>()),
        route_(call.in[lists + 2].as<const int32_t>()),
        code_S_(lists + 4 < call.in.size() ? call.in[lists + 4].as<int32_t>() : nullptr),
        passing_Qk_(lists + 5 < call.in.size() ? call.in[lists + 5].as<int32_t>() : nullptr) {
    HEDDLE_CHECK(call.communicator->size() == plan_.ranks, "an exchange among {} ranks on a communicator of {}",
                 plan_.ranks, call.communicator->size());
    if (call.op->kind() == "dispatch") {
      code_S_ = call.out[2].as<int32_t>();
      passing_Qk_ = call.out[3].as<int32_t>();
    }
    topology_ = plan_.topology();
    over_nodes_ = topology_ == Topology::node || topology_ == Topology::merge;
    marked_ = rows_go_back_alone(topology_, dtype_);
    size_ = {.T = plan_.tokens,
             .k = plan_.top_k,
             .slices = plan_.slices,
             .G = plan_.ranks,
             .P = plan_.experts_each,
             .Q = plan_.route[device::kRoutePassing],
             .S = rows_here(),
             .F = plan_.route[device::kRouteForwarded],
             .H = H_,
             .row_bytes = H_ * size_of(dtype_)};
    HEDDLE_CHECK(size_.S < (int64_t{1} << 31) / device::kRowsOfToken && size_.k <= device::kRowsOfToken,
                 "{} rows received of tokens with {} experts", size_.S, size_.k);
    room_ = Scratch(call.scratch, size_);
    upload_places();
    find_ends();
  }

  /// Rows of tokens (x or dc) to where their experts take them (`to`); with gates, these go ahead.
  void forward(const std::byte* x_TH, const float* g_Tk, std::byte* to_SH, float* g_S) {
    const std::byte* rows = x_TH;
    const float* gates = g_Tk;
    if (over_nodes_) {
      if (g_Tk != nullptr) {
        tell_nodes(g_Tk);
        gates = room_.gates_Qk;
      }
      pass_on(x_TH);
      rows = room_.staged_QH;
    }
    const bool plain = topology_ == Topology::plain;
    if (!plain) list_tokens_of_ranks();
    if (plain || gates != nullptr) list_rows(gates);
    const int64_t leaving = leave_.tokens();
    work_.gather(dtype_, rows, H_, plain ? room_.slot_of_R : room_.token_U, plain ? size_.k : 1, leaving,
                 room_.leaving, call_.stream);
    Parcels parcels;
    if (gates != nullptr)
      runs(parcels, leave_, leave_.rows, room_.header_R2, arrive_, arrive_.rows, room_.header_S2, 8);
    runs(parcels, leave_, leave_.all(), room_.leaving, arrive_, arrive_.all(), room_.arriving, size_.row_bytes);
    parcels.exchange(*call_.communicator);
    device::PlaceRows place = placing();
    place.header_S2 = gates != nullptr ? room_.header_S2 : nullptr;
    place.g_S = g_S;
    place.from_S = room_.from_S;
    work_.place_rows(place, call_.stream);
    work_.gather(dtype_, room_.arriving, H_, room_.from_S, 1, size_.S, to_SH, call_.stream);
  }

  /// Rows of experts (and gradients of their gates) back to the sums of tokens.
  void back(const std::byte* rows_SH, const float* g_S, const float* g_Tk, const TensorView& residual,
            const float* dg_S, void* to_TH, float* dg_Tk) {
    const bool plain = topology_ == Topology::plain;
    device::PlaceRows place = placing();
    if (plain || dg_S != nullptr) place.row_of_arrival = room_.row_of_arrival;
    if (!plain) {
      place.leaf_UL = room_.leaf_UL;
      place.key_UL = room_.key_UL;
      place.to_U = room_.to_U;
      work_.fill(room_.leaf_UL, 0xff, arrive_.tokens() * place.L * 4, call_.stream);
    }
    work_.place_rows(place, call_.stream);
    if (plain || dg_S != nullptr) list_rows(nullptr);

    Parcels parcels;
    if (dg_S != nullptr) {
      work_.gather(Dtype::f32, dg_S, 1, room_.row_of_arrival, 1, size_.S, room_.number_S, call_.stream);
      runs(parcels, arrive_, arrive_.rows, room_.number_S, leave_, leave_.rows, room_.number_R, 4);
    }
    device::SumHome home{};
    home.g_Tk = g_Tk;
    home.residual_TH = residual.data;
    home.to_TH = to_TH;
    home.H = H_;
    home.key_of_G = room_.key_of_G;
    if (plain) {
      work_.gather(dtype_, rows_SH, H_, room_.row_of_arrival, 1, size_.S, room_.arriving, call_.stream);
      runs(parcels, arrive_, arrive_.rows, room_.arriving, leave_, leave_.rows, room_.leaving, size_.row_bytes);
      parcels.exchange(*call_.communicator);
      home.routes = own_routes(false);
      home.row_of_Tks = room_.row_of_Qks;
      home.rows = room_.leaving;
      home.keys_each = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size_.P)));
    } else {
      const Mixed there = sums_of_ranks(rows_SH, g_S, parcels);
      list_inner();
      const Mixed at_home = over_nodes_ ? sums_of_nodes(there, dg_S != nullptr) : there;
      home.routes = own_routes(over_nodes_);
      home.place_DQ = over_nodes_ ? room_.outer_place : room_.place_DQ;
      home.many_DI = over_nodes_ ? room_.outer_many : room_.many_DI;
      home.alone_DI = over_nodes_ ? room_.outer_alone : room_.alone_DI;
      home.sums = at_home.sums;
      home.rows = at_home.rows;
    }
    work_.sum_home(dtype_, home, call_.stream);
    if (dg_S == nullptr) return;
    device::SlotNumbers numbers{};
    numbers.routes = own_routes(over_nodes_);
    numbers.from = over_nodes_ ? room_.home_numbers : room_.number_R;
    numbers.row_of_Qks = over_nodes_ ? nullptr : room_.row_of_Qks;
    numbers.to = dg_Tk;
    work_.slot_numbers(numbers, call_.stream);
  }

  /// What an exchange keeps in scratch, by sizes that are known before it runs.
  struct Sizes {
    int64_t T, k, slices, G, P, Q, S, F, H, row_bytes;
  };
  struct Scratch {
    Scratch() = default;
    Scratch(std::byte* base, const Sizes& z) : base_(base) {
      const bool passes = z.Q > 0;
      const int64_t tokens = std::max(z.T, z.Q), slots = z.k * z.slices, R = tokens * slots;
      const int64_t lists = passes ? z.G * z.G : z.G, U = std::max(z.T * slots, z.F), home = U;
      node_of_G = take<int32_t>(z.G);
      key_of_G = take<int32_t>(z.G);
      turn_G = take<int32_t>(z.G);
      every_G = take<int32_t>(z.G);
      members = take<int32_t>(z.G);
      own_node = take<int32_t>(1);
      first_I = take<int32_t>(z.G + 1);
      own_first = take<int32_t>(2);
      place_DQ = take<int32_t>(z.G * tokens);
      outer_place = take<int32_t>(z.G * tokens);
      for (int32_t** counts : {&many_DI, &alone_DI, &outer_many, &outer_alone}) *counts = take<int32_t>(lists + 1);
      offsets = take<int32_t>(lists * z.P + 1);
      token_U = take<int32_t>(U);
      slot_of_R = take<int32_t>(R);
      row_of_Qks = take<int32_t>(R);
      header_R2 = take<int32_t>(2 * R);
      header_S2 = take<int32_t>(2 * z.S);
      for (int32_t** each : {&from_S, &row_of_arrival, &to_U}) *each = take<int32_t>(z.S);
      leaf_UL = take<int32_t>(z.S * std::min(z.k, z.P));
      key_UL = take<int32_t>(z.S * std::min(z.k, z.P));
      number_R = take<float>(R);
      number_S = take<float>(z.S);
      gates_Qk = take<float>(z.Q * z.k);
      spread_numbers = take<float>(passes ? R : 0);
      home_numbers = take<float>(passes ? z.G * z.T * slots : 0);
      // A row, or on the way back a sum of f32, and room to align the second of two runs.
      const auto of_rows = [&](int64_t rows) { return rows * std::max(z.row_bytes, z.H * 4) + 256; };
      leaving = take<std::byte>(of_rows(U));
      arriving = take<std::byte>(of_rows(z.S));
      staged_QH = take<std::byte>(passes ? of_rows(z.Q) : 0);
      home_UH = take<std::byte>(passes ? of_rows(home) : 0);
    }
    int64_t bytes() const { return bytes_; }

    int32_t *node_of_G, *key_of_G, *turn_G, *every_G, *members, *own_node, *first_I, *own_first;
    int32_t *place_DQ, *many_DI, *alone_DI;           // of what goes from here to the ranks of experts
    int32_t *outer_place, *outer_many, *outer_alone;  // of what goes to nodes
    int32_t *offsets, *token_U, *slot_of_R, *row_of_Qks, *header_R2, *header_S2;
    int32_t *from_S, *row_of_arrival, *to_U, *leaf_UL, *key_UL;
    float *number_R, *number_S, *gates_Qk, *spread_numbers, *home_numbers;
    std::byte *leaving, *arriving, *staged_QH, *home_UH;

   private:
    /// Aligned to 256 bytes.
    template <class T>
    T* take(int64_t count) {
      T* at = reinterpret_cast<T*>(base_ + bytes_);
      bytes_ += padded(count * static_cast<int64_t>(sizeof(T)));
      return at;
    }
    std::byte* base_ = nullptr;
    int64_t bytes_ = 0;
  };

 private:
  int64_t rows_here() const {
    int64_t rows = 0;
    for (int64_t s = 0; s < plan_.ranks; ++s) rows += rows_from(s);
    return rows;
  }
  int64_t rows_from(int64_t s) const {
    int64_t rows = 0;
    for (int64_t e = 0; e < plan_.experts_each; ++e) rows += plan_.received(s, e);
    return rows;
  }
  int64_t rows_to(int64_t r) const {
    int64_t rows = 0;
    for (int64_t e = 0; e < plan_.experts_each; ++e) rows += plan_.sent(r, e);
    return rows;
  }
  const std::vector<int>& own_members() const { return places_.members[static_cast<size_t>(places_.own_node())]; }

  void upload(int32_t* to, const std::vector<int32_t>& from) const {
    work_.upload(to, from.data(), std::ssize(from) * 4, call_.stream);
  }
  void upload_places() {
    std::vector<int32_t> key, turn(static_cast<size_t>(size_.G)), every, first{0};
    for (int r = 0; r < size_.G; ++r) {
      key.push_back(static_cast<int32_t>(places_.key_of(r)));
      turn[static_cast<size_t>(r)] = r;
      every.push_back(r);
    }
    sources_ = over_nodes_ ? places_.sources_of(places_.self) : std::vector<int>{places_.self};
    if (over_nodes_) {
      int32_t next = 0;
      for (const int member : own_members()) {
        for (const int source : places_.sources_of(member)) turn[static_cast<size_t>(source)] = next++;
      }
    }
    for (const int s : sources_) {
      first.push_back(first.back() + static_cast<int32_t>(over_nodes_ ? plan_.tokens_of(s) : size_.T));
    }
    upload(room_.node_of_G, {places_.node.begin(), places_.node.end()});
    upload(room_.key_of_G, key);
    upload(room_.turn_G, turn);
    upload(room_.every_G, every);
    upload(room_.members, {own_members().begin(), own_members().end()});
    upload(room_.own_node, {places_.own_node()});
    upload(room_.first_I, first);
    upload(room_.own_first, {0, static_cast<int32_t>(size_.T)});
  }

  void find_ends() {
    const bool plain = topology_ == Topology::plain;
    const auto add = [&](Ends& ends, int peer, int64_t rows, int64_t tokens, int64_t alone) {
      ends.peer.push_back(peer);
      ends.rows.push_back(rows);
      ends.many.push_back(tokens - (marked_ ? alone : 0));
      ends.alone.push_back(marked_ ? alone : 0);
    };
    const auto listed = [&](RouteList list, int64_t r) { return plain ? 0 : plan_.listed(list, r); };
    if (!over_nodes_) {
      for (int r = 0; r < size_.G; ++r) {
        add(leave_, r, rows_to(r), plain ? rows_to(r) : listed(RouteList::leave, r),
            listed(RouteList::leave_alone, r));
        add(arrive_, r, rows_from(r), plain ? rows_from(r) : listed(RouteList::arrive, r),
            listed(RouteList::arrive_alone, r));
      }
      return;
    }
    for (const int member : own_members()) {
      add(leave_, member, listed(RouteList::leave_rows, member), listed(RouteList::leave, member),
          listed(RouteList::leave_alone, member));
      int64_t rows = 0, tokens = 0, alone = 0;
      for (const int s : places_.sources_of(member)) {
        rows += rows_from(s);
        tokens += listed(RouteList::arrive, s);
        alone += listed(RouteList::arrive_alone, s);
      }
      add(arrive_, member, rows, tokens, alone);
    }
    for (int n = 0; n < places_.nodes(); ++n) {
      add(out_, places_.gate_of(places_.self, n), 0, listed(RouteList::out, n), listed(RouteList::out_alone, n));
    }
    for (const int s : sources_) {
      add(in_, s, 0, listed(RouteList::in, s), listed(RouteList::in_alone, s));
    }
  }

  /// What goes to each end in order, and what comes from each: `each` bytes a count.
  void runs(Parcels& parcels, const Ends& to, const std::vector<int64_t>& sent, const void* from,
            const Ends& source, const std::vector<int64_t>& received, void* into, int64_t each) const {
    const auto* at = static_cast<const std::byte*>(from);
    for (size_t i = 0; i < sent.size(); ++i) {
      parcels.send(to.peer[i], static_cast<const void*>(at), sent[i] * each);
      at += sent[i] * each;
    }
    auto* place = static_cast<std::byte*>(into);
    for (size_t i = 0; i < received.size(); ++i) {
      parcels.receive(source.peer[i], static_cast<void*>(place), received[i] * each);
      place += received[i] * each;
    }
  }
  void mixed_runs(Parcels& parcels, const Ends& to, const Mixed& from, const Ends& source,
                  const Mixed& into) const {
    runs(parcels, to, to.many, from.sums, source, source.many, into.sums, H_ * 4);
    runs(parcels, to, to.alone, from.rows, source, source.alone, into.rows, size_.row_bytes);
  }

  /// Tokens of this rank; tokens that leave from here for the ranks of experts.
  device::TokenRoutes own_routes(bool by_node) const {
    device::TokenRoutes r{};
    r.experts_Qk = plan_.experts_Tk;
    r.first_I = room_.own_first;
    r.to_D = room_.every_G;
    r.node_of_G = room_.node_of_G;
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
  device::TokenRoutes inner_routes() const {
    device::TokenRoutes r = own_routes(false);
    if (!over_nodes_) return r;
    r.experts_Qk = passing_Qk_;
    r.first_I = room_.first_I;
    r.to_D = room_.members;
    r.Q = size_.Q;
    r.I = std::ssize(sources_);
    r.D = std::ssize(own_members());
    return r;
  }

  void list_inner() const {
    const Alone alone = !marked_ ? Alone::never : over_nodes_ ? Alone::on_node : Alone::on_rank;
    work_.list_tokens({.routes = inner_routes(),
                       .alone = alone,
                       .all = false,
                       .place_DQ = room_.place_DQ,
                       .many_DI = room_.many_DI,
                       .alone_DI = room_.alone_DI},
                      call_.stream);
  }
  void list_outer(const device::TokenRoutes& routes) const {
    work_.list_tokens({.routes = routes,
                       .alone = marked_ ? Alone::on_node : Alone::never,
                       .all = topology_ == Topology::merge,
                       .place_DQ = room_.outer_place,
                       .many_DI = room_.outer_many,
                       .alone_DI = room_.outer_alone},
                      call_.stream);
  }
  /// Tokens that pass through here, as they came.
  void list_passing() const {
    device::TokenRoutes here = inner_routes();
    here.to_D = room_.own_node;
    here.D = 1;
    here.by_node = true;
    list_outer(here);
  }
  void list_tokens_of_ranks() const {
    list_inner();
    if (over_nodes_) list_passing();
    const device::TokenRoutes inner = inner_routes();
    work_.tokens_of_places({.place_DQ = room_.place_DQ,
                            .many_DI = room_.many_DI,
                            .alone_DI = room_.alone_DI,
                            .first_I = inner.first_I,
                            .other_place_Q = over_nodes_ ? room_.outer_place : nullptr,
                            .other_many_I = room_.outer_many,
                            .other_alone_I = room_.outer_alone,
                            .token_U = room_.token_U,
                            .D = inner.D,
                            .Q = inner.Q,
                            .I = inner.I},
                           call_.stream);
  }
  void list_rows(const float* gates) const {
    device::ListRows rows{};
    rows.routes = inner_routes();
    rows.offsets = room_.offsets;
    rows.slot_of_R = room_.slot_of_R;
    rows.row_of_Qks = room_.row_of_Qks;
    rows.g_Qk = gates;
    rows.header_R2 = gates == nullptr ? nullptr : room_.header_R2;
    rows.place_DQ = topology_ == Topology::plain ? nullptr : room_.place_DQ;
    rows.many_DI = room_.many_DI;
    rows.alone_DI = room_.alone_DI;
    work_.list_rows(rows, call_.stream);
  }
  device::PlaceRows placing() const {
    device::PlaceRows place{};
    place.n_2GP = n_;
    place.turn_G = room_.turn_G;
    if (topology_ != Topology::plain) {
      place.arrive_G = route_ + device::route_at(RouteList::arrive, size_.G);
      place.arrive_alone_G = route_ + device::route_at(RouteList::arrive_alone, size_.G);
    }
    place.G = size_.G;
    place.P = size_.P;
    place.L = std::min(size_.k, size_.P);
    place.marked = marked_;
    place.code_S = code_S_;
    return place;
  }

  /// Experts and gates of all tokens to every node, so that the ranks that pass rows on know what was chosen.
  void tell_nodes(const float* g_Tk) const {
    const int64_t own = size_.T * size_.k;
    Parcels parcels;
    for (int n = 0; n < places_.nodes(); ++n) {
      const int gate = places_.gate_of(places_.self, n);
      parcels.send(gate, plan_.experts_Tk, own);
      parcels.send(gate, g_Tk, own);
    }
    int64_t at = 0;
    for (const int source : sources_) {
      const int64_t count = plan_.tokens_of(source) * size_.k;
      parcels.receive(source, passing_Qk_ + at, count);
      parcels.receive(source, room_.gates_Qk + at, count);
      at += count;
    }
    parcels.exchange(*call_.communicator);
  }
  /// Rows across nodes: those with an expert there, or all.
  void pass_on(const std::byte* x_TH) const {
    Parcels parcels;
    if (topology_ == Topology::merge) {
      for (const int gate : out_.peer) {
        parcels.send(gate, static_cast<const void*>(x_TH), size_.T * size_.row_bytes);
      }
      runs(parcels, {}, {}, nullptr, in_, in_.all(), room_.staged_QH, size_.row_bytes);
    } else {
      const device::TokenRoutes own = own_routes(true);
      list_outer(own);
      work_.tokens_of_places({.place_DQ = room_.outer_place,
                              .many_DI = room_.outer_many,
                              .alone_DI = room_.outer_alone,
                              .first_I = own.first_I,
                              .token_U = room_.token_U,
                              .D = own.D,
                              .Q = own.Q,
                              .I = own.I},
                             call_.stream);
      work_.gather(dtype_, x_TH, H_, room_.token_U, 1, out_.tokens(), room_.leaving, call_.stream);
      runs(parcels, out_, out_.all(), room_.leaving, in_, in_.all(), room_.staged_QH, size_.row_bytes);
    }
    parcels.exchange(*call_.communicator);
  }

  /// Sums of arrived tokens over the experts here, to where they left from. Ends the parcels.
  Mixed sums_of_ranks(const std::byte* rows_SH, const float* g_S, Parcels& parcels) const {
    const Mixed here(room_.arriving, Ends::sum(arrive_.many), H_), there(room_.leaving, Ends::sum(leave_.many), H_);
    work_.sum_tokens(dtype_,
                     {.rows_SH = rows_SH,
                      .g_S = g_S,
                      .leaf_UL = room_.leaf_UL,
                      .key_UL = room_.key_UL,
                      .to_U = room_.to_U,
                      .sums = here.sums,
                      .alone = here.rows,
                      .U = arrive_.tokens(),
                      .L = std::min(size_.k, size_.P),
                      .H = H_},
                     call_.stream);
    mixed_runs(parcels, arrive_, here, leave_, there);
    parcels.exchange(*call_.communicator);
    return there;
  }
  /// Sums of ranks to sums of the node, and those home.
  Mixed sums_of_nodes(const Mixed& ranks, bool with_numbers) const {
    const Mixed here(room_.staged_QH, Ends::sum(in_.many), H_), home(room_.home_UH, Ends::sum(out_.many), H_);
    list_passing();
    work_.sum_node(dtype_,
                   {.routes = inner_routes(),
                    .place_DQ = room_.place_DQ,
                    .many_DI = room_.many_DI,
                    .alone_DI = room_.alone_DI,
                    .sums = ranks.sums,
                    .alone = ranks.rows,
                    .to_place_Q = room_.outer_place,
                    .to_many_I = room_.outer_many,
                    .to_alone_I = room_.outer_alone,
                    .to_sums = here.sums,
                    .to_alone = here.rows,
                    .H = H_,
                    .node = places_.own_node()},
                   call_.stream);
    Parcels parcels;
    if (with_numbers) {  // one a (token, slot, slice), so that what crosses is regular
      work_.slot_numbers({.routes = inner_routes(),
                          .from = room_.number_R,
                          .row_of_Qks = room_.row_of_Qks,
                          .to = room_.spread_numbers,
                          .spread = true,
                          .node = places_.own_node()},
                         call_.stream);
      const int64_t slots = size_.k * size_.slices;
      std::vector<int64_t> sent;
      for (const int source : sources_) sent.push_back(plan_.tokens_of(source) * slots);
      const std::vector<int64_t> received(out_.peer.size(), size_.T * slots);
      runs(parcels, in_, sent, room_.spread_numbers, out_, received, room_.home_numbers, 4);
    }
    mixed_runs(parcels, in_, here, out_, home);
    parcels.exchange(*call_.communicator);
    list_outer(own_routes(true));
    return home;
  }

  const KernelCall& call_;
  const device::RowWork& work_;
  RoutingPlan plan_;
  Places places_;
  Dtype dtype_;
  int64_t H_;
  const int32_t *n_, *route_;  // on the device
  int32_t *code_S_, *passing_Qk_;
  Topology topology_ = Topology::plain;
  bool over_nodes_ = false, marked_ = false;
  Sizes size_{};
  Scratch room_;
  std::vector<int> sources_;
  Ends leave_, arrive_;  // at the ranks of experts, as this rank passes tokens on and as it has experts
  Ends out_, in_;        // across nodes, as this rank is a source and as it passes tokens on
};

/// x, g, experts, n, … -> q, g_rows, codes of rows, experts of passing tokens.
void dispatch(const KernelCall& call) {
  Exchange(call, 2, call.in[0])
      .forward(call.in[0].as<const std::byte>(), call.in[1].as<const float>(), call.out[0].as<std::byte>(),
               call.out[1].as<float>());
}
/// dc, experts, n, … -> dr.
void collect_dgrad(const KernelCall& call) {
  Exchange(call, 1, call.in[0])
      .forward(call.in[0].as<const std::byte>(), nullptr, call.out[0].as<std::byte>(), nullptr);
}
/// e, g_rows, g, experts, n, …, residual? -> c.
void collect(const KernelCall& call) {
  Exchange(call, 3, call.in[0])
      .back(call.in[0].as<const std::byte>(), call.in[1].as<const float>(), call.in[2].as<const float>(),
            call.in.size() > 9 ? call.in[9] : TensorView{}, nullptr, call.out[0].data, nullptr);
}
/// dq, dg_rows, experts, n, … -> dx, dg.
void dispatch_dgrad(const KernelCall& call) {
  Exchange(call, 2, call.in[0])
      .back(call.in[0].as<const std::byte>(), nullptr, nullptr, {}, call.in[1].as<const float>(), call.out[0].data,
            call.out[1].as<float>());
}

template <size_t lists>
int64_t scratch(const ir::Stage& stage, const ir::Op& op, const ir::RowCounts& rows) {
  const ir::Value& x = stage.value(op.in[0]);
  const ir::Shape& n = stage.value(op.in[lists + 1]).shape;
  const int64_t k = stage.value(op.in[lists]).shape.back().count, H = x.shape.back().count;
  return Exchange::Scratch(nullptr, {.T = k == 0 ? 0 : stage.elements(op.in[lists], rows) / k,
                                     .k = k,
                                     .slices = op.attributes.integer("slices"),
                                     .G = n[1].count,
                                     .P = n[2].count,
                                     .Q = rows.rows(op.in[lists + 2]),
                                     .S = rows.rows(op.in[lists + 1]),
                                     .F = rows.rows(op.in[lists + 3]),
                                     .H = H,
                                     .row_bytes = H * size_of(x.dtype)})
      .bytes();
}

}  // namespace

const std::vector<Collective>& device_exchange_kernels() {
  static const std::vector<Collective> list{{"dispatch", dispatch, scratch<2>},
                                            {"collect_dgrad", collect_dgrad, scratch<1>},
                                            {"collect", collect, scratch<3>},
                                            {"dispatch_dgrad", dispatch_dgrad, scratch<2>}};
  return list;
}

}  // namespace heddle::comm

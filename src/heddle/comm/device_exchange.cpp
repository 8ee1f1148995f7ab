// The experts' exchange on the memory of a device: share_counts, counts_to_host, dispatch, collect and their
// gradients, plain topology, experts whole on their ranks.
//
// The host knows how many rows go where from its copy of the counts, and no more: which rows these are, the device
// sorts out itself. A rank's own rows stand by (expert, token), which is by (rank, expert, token), so what goes to
// an expert is one run of them; rows received lie by (expert, source, token). T tokens, k experts a token, R = T·k
// rows, S rows received, G ranks, P experts on each.
#include <bit>

#include "heddle/comm/collectives.h"
#include "heddle/comm/parcels.h"
#include "heddle/comm/places.h"
#include "heddle/device/host_copies.h"
#include "heddle/device/row_work.h"

namespace heddle::comm {

namespace {

using device::HostCopies;
using device::KernelCall;
using device::TensorView;

Support plain_only(const ir::Op& op) {
  if (op.attributes.integer_or("slices", 1) != 1) {
    return Support::no(
        fmt::format("'{}' among ranks that cut experts' widths (mesh.etp) has no kernel", op.kind()));
  }
  if (op.attributes.has("topology") && op.attributes.word("topology") != "plain") {
    return Support::no(fmt::format("'{}' by the topology '{}' has no kernel, only by 'plain'", op.kind(),
                                   op.attributes.word("topology")));
  }
  return Support::yes();
}

const device::RowWork& work_of(const KernelCall& call) {
  HEDDLE_CHECK(call.row_work != nullptr, "'{}' on a device that has no work for rows", call.op->kind());
  return *call.row_work;
}

/// Pieces of scratch, each aligned to 256 bytes.
class Room {
 public:
  explicit Room(std::byte* base) : base_(base) {}
  template <class T = std::byte>
  T* take(int64_t count) {
    T* at = reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    return at;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

/// What all exchanges keep in scratch: own rows sorted by expert, those rows, and a number of each.
struct Sorted {
  Sorted(std::byte* base, int64_t T, int64_t k, int64_t E, int64_t row_bytes) : T(T), k(k), E(E), room(base) {
    row_of_Tk = room.take<int32_t>(T * k);
    slot_of_R = room.take<int32_t>(T * k);
    offsets = room.take<int32_t>(E + 1);
    key_of_E = room.take<int32_t>(E);
    rows_RH = room.take(T * k * row_bytes);
    number_R = room.take<float>(T * k);
  }
  int64_t T, k, E;
  Room room;
  int32_t *row_of_Tk, *slot_of_R, *offsets, *key_of_E;
  std::byte* rows_RH;
  float* number_R;
};

/// A call with its lists, `experts` at in[lists] and n behind it.
class Exchange {
 public:
  Exchange(const KernelCall& call, size_t lists, const TensorView& rows)
      : call_(call),
        work_(work_of(call)),
        experts_Tk(call.in[lists]),
        n_(HostCopies::on_host(call, call.in[lists + 1])),
        G(n_.dim(1)),
        P(n_.dim(2)),
        row_bytes(rows.columns() * size_of(rows.dtype)),
        s(call.scratch, experts_Tk.dim(0), experts_Tk.dim(1), G * P, row_bytes) {
    HEDDLE_CHECK(call.communicator->size() == G, "an exchange among {} ranks on a communicator of {}", G,
                 call.communicator->size());
    work_.sort_rows(experts_Tk.as<const int32_t>(), s.T, s.k, s.E, s.row_of_Tk, s.slot_of_R, s.offsets,
                    call.stream);
  }

  /// Own rows or numbers to the experts, from where they stand sorted to where they are received; or back.
  void to_experts(Parcels& parcels, std::byte* sorted_R, std::byte* received_S, int64_t each) const {
    each_block(
        [&](int64_t peer, int64_t own, int64_t count) {
          parcels.send(peer, static_cast<const void*>(sorted_R + own * each), count * each);
        },
        [&](int64_t peer, int64_t at, int64_t count) {
          parcels.receive(peer, static_cast<void*>(received_S + at * each), count * each);
        });
  }
  void from_experts(Parcels& parcels, std::byte* received_S, std::byte* sorted_R, int64_t each) const {
    each_block(
        [&](int64_t peer, int64_t own, int64_t count) {
          parcels.receive(peer, static_cast<void*>(sorted_R + own * each), count * each);
        },
        [&](int64_t peer, int64_t at, int64_t count) {
          parcels.send(peer, static_cast<const void*>(received_S + at * each), count * each);
        });
  }
  void run(Parcels& parcels) const { parcels.exchange(*call_.communicator); }

  /// Keys of the tree of sums over (node, slot on the node, expert of the rank).
  const int32_t* keys() const {
    const Places places(*call_.communicator);
    const auto each = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(P)));
    std::vector<int32_t> keys;
    for (int64_t e = 0; e < s.E; ++e) {
      keys.push_back(static_cast<int32_t>(places.key_of(static_cast<int>(e / P)) * each + e % P));
    }
    work_.upload(s.key_of_E, keys.data(), s.E * static_cast<int64_t>(sizeof(int32_t)), call_.stream);
    return s.key_of_E;
  }

 private:
  /// own(peer, first of the sorted rows, count) for each expert of each rank; other(peer, first of the received
  /// rows, count) for each source of each expert here. Between two ranks both go by expert.
  template <class Own, class Other>
  void each_block(Own own, Other other) const {
    const auto* n = n_.as<const int32_t>();
    int64_t first = 0;
    for (int64_t r = 0; r < G; ++r) {
      for (int64_t e = 0; e < P; ++e) {
        const int64_t count = n[r * P + e];
        own(r, first, count);
        first += count;
      }
    }
    HEDDLE_CHECK(first == s.T * s.k, "counts of {} rows for {} slots", first, s.T * s.k);
    int64_t at = 0;
    for (int64_t e = 0; e < P; ++e) {
      for (int64_t source = 0; source < G; ++source) {
        const int64_t count = n[(G + source) * P + e];
        other(source, at, count);
        at += count;
      }
    }
  }

  const KernelCall& call_;
  const device::RowWork& work_;

 public:
  TensorView experts_Tk;

 private:
  TensorView n_;

 public:
  int64_t G, P, row_bytes;
  Sorted s;
};

void share_counts(const KernelCall& call) {
  const device::RowWork& work = work_of(call);
  const TensorView &experts = call.in[0], &counts = call.out[0], &route = call.out[1];
  const int64_t G = counts.dim(1), P = counts.dim(2);
  work.zero(route.data, route.elements() * static_cast<int64_t>(sizeof(int32_t)), call.stream);
  auto* sent = counts.as<int32_t>();
  work.count_rows(experts.as<const int32_t>(), experts.dim(0), experts.dim(1), G * P, sent, call.stream);
  Parcels parcels;
  for (int64_t r = 0; r < G; ++r) {
    parcels.send(r, static_cast<const int32_t*>(sent + r * P), P);
    parcels.receive(r, sent + (G + r) * P, P);
  }
  parcels.exchange(*call.communicator);
}

/// The executor makes the host's copy; nothing is sent here, and this op has no communicator.
void counts_to_host(const KernelCall& call) {
  const device::RowWork* work = &work_of(call);
  for (const size_t i : {size_t{0}, size_t{1}}) {
    work->copy(call.out[i].data, call.in[i].data, call.out[i].elements() * static_cast<int64_t>(sizeof(int32_t)),
               call.stream);
  }
  work->copy(call.out[2].data, call.in[1].as<const int32_t>() + device::kRouteForwarded, sizeof(int32_t),
             call.stream);
  const TensorView& n = call.in[0];
  work->local_offsets(n.as<const int32_t>(), n.dim(1), n.dim(2), call.out[3].as<int32_t>(), call.stream);
}

/// x, g, experts, n, … -> q, g_rows, token_of_rows (of other topologies), passing (likewise).
void dispatch(const KernelCall& call) {
  const TensorView &x = call.in[0], &g = call.in[1];
  const Exchange e(call, 2, x);
  const device::RowWork& work = work_of(call);
  work.gather(x, e.s.slot_of_R, e.s.k, e.s.T * e.s.k, e.s.rows_RH, call.stream);
  TensorView gates = g;
  gates.rank = 2;
  gates.dims = {g.elements(), 1, 1, 1};
  work.gather(gates, e.s.slot_of_R, 1, e.s.T * e.s.k, e.s.number_R, call.stream);
  Parcels parcels;
  e.to_experts(parcels, reinterpret_cast<std::byte*>(e.s.number_R), call.out[1].as<std::byte>(), sizeof(float));
  e.to_experts(parcels, e.s.rows_RH, call.out[0].as<std::byte>(), e.row_bytes);
  e.run(parcels);
}

/// dc, experts, n, … -> dr.
void collect_dgrad(const KernelCall& call) {
  const Exchange e(call, 1, call.in[0]);
  work_of(call).gather(call.in[0], e.s.slot_of_R, e.s.k, e.s.T * e.s.k, e.s.rows_RH, call.stream);
  Parcels parcels;
  e.to_experts(parcels, e.s.rows_RH, call.out[0].as<std::byte>(), e.row_bytes);
  e.run(parcels);
}

/// e, g_rows, g, experts, n, …, residual? -> c.
void collect(const KernelCall& call) {
  const Exchange e(call, 3, call.in[0]);
  Parcels parcels;
  e.from_experts(parcels, call.in[0].as<std::byte>(), e.s.rows_RH, e.row_bytes);
  e.run(parcels);
  work_of(call).tree_sum(e.s.rows_RH, call.in[2].as<const float>(), e.s.row_of_Tk, e.experts_Tk, e.keys(),
                         call.in.size() > 9 ? call.in[9] : TensorView{}, call.out[0], call.stream);
}

/// dq, dg_rows, experts, n, … -> dx, dg.
void dispatch_dgrad(const KernelCall& call) {
  const Exchange e(call, 2, call.in[0]);
  const device::RowWork& work = work_of(call);
  Parcels parcels;
  e.from_experts(parcels, call.in[1].as<std::byte>(), reinterpret_cast<std::byte*>(e.s.number_R), sizeof(float));
  e.from_experts(parcels, call.in[0].as<std::byte>(), e.s.rows_RH, e.row_bytes);
  e.run(parcels);
  work.tree_sum(e.s.rows_RH, nullptr, e.s.row_of_Tk, e.experts_Tk, e.keys(), {}, call.out[0], call.stream);
  TensorView numbers;  // of the sorted rows, back to their slots
  numbers.data = e.s.number_R;
  numbers.rank = 2;
  numbers.dims = {e.s.T * e.s.k, 1, 1, 1};
  work.gather(numbers, e.s.row_of_Tk, 1, e.s.T * e.s.k, call.out[1].data, call.stream);
}

template <size_t lists>
int64_t scratch(const ir::Stage& stage, const ir::Op& op, const ir::RowCounts& rows) {
  const ir::Value& x = stage.value(op.in[0]);
  const int64_t k = stage.value(op.in[lists]).shape.back().count;
  const ir::Shape& n = stage.value(op.in[lists + 1]).shape;
  const int64_t slots = stage.elements(op.in[lists], rows);
  return Sorted(nullptr, k == 0 ? 0 : slots / k, k, n[1].count * n[2].count,
                x.shape.back().count * size_of(x.dtype))
      .room.bytes();
}

}  // namespace

const std::vector<Collective>& device_exchange() {
  static const std::vector<Collective> list{{"share_counts", share_counts, nullptr, plain_only},
                                            {"counts_to_host", counts_to_host, nullptr, nullptr},
                                            {"dispatch", dispatch, scratch<2>, plain_only},
                                            {"collect_dgrad", collect_dgrad, scratch<1>, plain_only},
                                            {"collect", collect, scratch<3>, plain_only},
                                            {"dispatch_dgrad", dispatch_dgrad, scratch<2>, plain_only}};
  return list;
}

}  // namespace heddle::comm

// dispatch and collect_dgrad: rows of tokens to the ranks of their experts, where they lie by (expert, source,
// token).
//
// X is the type of rows, A that of gates. Headers (tokens of rows, gates, experts) travel in exchanges of their
// own, ahead of the rows or together with those of the hop before; backward, dispatch's findings are all that is
// needed.
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/comm/exchange_kernels.h"
#include "heddle/comm/parcels.h"
#include "heddle/comm/row_lists.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

std::byte* row(const TensorView& rows, int64_t i) {
  return static_cast<std::byte*>(rows.data) + i * rows.columns() * size_of(rows.dtype);
}

struct Dispatch {
  Dispatch(const KernelCall& call, const RoutingPlan& plan)
      : call(call),
        plan(plan),
        communicator(*call.communicator),
        places(communicator),
        own(plan, plan.experts_Tk, plan.tokens),
        x_TH(call.in[0]),
        q_SH(call.out[0]),
        row_bytes(x_TH.columns() * size_of(x_TH.dtype)),
        block(Arrivals::blocks(plan)) {}

  bool over_nodes() const { return plan.topology() == Topology::node || plan.topology() == Topology::merge; }

  // The part of a header for one rank: what `values` holds for each of its rows.
  template <class T>
  void send_values(Parcels& parcels, int64_t to, const SourceRows& rows, const T* values) const {
    for (int64_t e = 0; e < plan.experts_each; ++e) {
      const std::span<const int32_t> slots = rows.of(to, e);
      parcels.send(to, values + (slots.data() - rows.of(to).data()), std::ssize(slots));
    }
  }
  template <class T>
  void receive_values(Parcels& parcels, int64_t from, int64_t source, T* values_S) const {
    for (int64_t e = 0; e < plan.experts_each; ++e) {
      const auto b = static_cast<size_t>(e * plan.ranks + source);
      parcels.receive(from, values_S + block[b], block[b + 1] - block[b]);
    }
  }

  // One row for every (token, expert).
  void plain_rows(Parcels& parcels) const {
    for (int64_t r = 0; r < plan.ranks; ++r) {
      for (const int32_t slot : own.of(r)) parcels.send(r, row(x_TH, slot / plan.top_k), row_bytes);
    }
    for (int64_t i = 0, b = 0; b + 1 < std::ssize(block); ++b) {
      for (; i < block[static_cast<size_t>(b + 1)]; ++i) parcels.receive(b % plan.ranks, row(q_SH, i), row_bytes);
    }
  }

  // The first of a token's rows, from wherever it comes.
  void receive_tokens(Parcels& parcels, int64_t from, int64_t source, const Arrivals& arrivals) const {
    const auto s = static_cast<size_t>(source);
    for (int64_t t = arrivals.of_source[s]; t < arrivals.of_source[s + 1]; ++t) {
      const int64_t first = arrivals.of_token[static_cast<size_t>(t)];
      parcels.receive(from, row(q_SH, arrivals.row[static_cast<size_t>(first)]), row_bytes);
    }
  }
  // The others are copies.
  void copy_to_experts(const Arrivals& arrivals) const {
    for (size_t t = 0; t + 1 < arrivals.of_token.size(); ++t) {
      const auto first = static_cast<size_t>(arrivals.of_token[t]),
                 end = static_cast<size_t>(arrivals.of_token[t + 1]);
      for (size_t i = first + 1; i < end; ++i) {
        std::memcpy(row(q_SH, arrivals.row[i]), row(q_SH, arrivals.row[first]), static_cast<size_t>(row_bytes));
      }
    }
  }

  // Once a rank.
  void rank_rows() const {
    const Arrivals arrivals(plan);
    Parcels parcels;
    for (int64_t r = 0; r < plan.ranks; ++r) {
      for (const int32_t t : own.tokens_on(r)) parcels.send(r, row(x_TH, t), row_bytes);
    }
    for (int64_t s = 0; s < plan.ranks; ++s) receive_tokens(parcels, s, s, arrivals);
    parcels.exchange(communicator);
    copy_to_experts(arrivals);
  }

  // Across nodes: to the rank that takes in this one's rows there; all of them, or the chosen ones.
  void rows_across(Parcels& parcels, const Passing& passing) const {
    const bool all = plan.topology() == Topology::merge;
    for (int n = 0; n < places.nodes(); ++n) {
      const int gate = places.gate_of(places.self, n);
      if (all) {
        parcels.send(gate, row(x_TH, 0), plan.tokens * row_bytes);
      } else {
        for (const int32_t t : own.tokens_on_node(places, n)) parcels.send(gate, row(x_TH, t), row_bytes);
      }
    }
    for (size_t i = 0; i < passing.sources.size(); ++i) {
      std::byte* const to = call.scratch + passing.first[i] * row_bytes;
      if (all) {
        parcels.receive(passing.sources[i], to, (passing.first[i + 1] - passing.first[i]) * row_bytes);
      } else {
        for (const int32_t t : passing.rows[i].tokens_on_node(places, places.own_node())) {
          parcels.receive(passing.sources[i], to + t * row_bytes, row_bytes);
        }
      }
    }
  }
  // Inside the node, once a rank.
  void rows_within(const Passing& passing) const {
    const Arrivals arrivals(plan);
    Parcels parcels;
    for (const int member : places.members[static_cast<size_t>(places.own_node())]) {
      for (size_t i = 0; i < passing.sources.size(); ++i) {
        for (const int32_t t : passing.rows[i].tokens_on(member)) {
          parcels.send(member, call.scratch + (passing.first[i] + t) * row_bytes, row_bytes);
        }
      }
      for (const int s : places.sources_of(member)) receive_tokens(parcels, member, s, arrivals);
    }
    parcels.exchange(communicator);
    copy_to_experts(arrivals);
  }

  const KernelCall& call;
  RoutingPlan plan;
  Communicator& communicator;
  Places places;
  SourceRows own;
  TensorView x_TH, q_SH;
  int64_t row_bytes;
  std::vector<int64_t> block;  // of (expert, source) among the received rows
};

/// values[i] of each row for a rank, by (expert, token): of(slot).
template <class T, class Of>
std::vector<T> values_of(const SourceRows& rows, int64_t rank, Of of) {
  std::vector<T> values;
  for (const int32_t slot : rows.of(rank)) values.push_back(of(slot));
  return values;
}

template <class A>
void dispatch_with_gates(const KernelCall& call) {
  RoutingPlan plan(call.in[2], call.in[3], call.in[4], call.op->attributes.integer("slices"));
  const A* g_Tk = call.in[1].as<const A>();
  A* g_S = call.out[1].as<A>();
  int32_t* token_S = call.out[2].as<int32_t>();
  int32_t* passing_Qk = call.out[3].as<int32_t>();
  plan.token_S = token_S;
  plan.passing_Qk = passing_Qk;
  const Dispatch d(call, plan);
  Communicator& communicator = *call.communicator;
  std::vector<std::vector<A>> gates;  // what an exchange sends stays here until it has ended
  std::vector<std::vector<int32_t>> tokens;
  const bool marks = rows_go_back_alone(plan.topology(), call.in[0].dtype);
  // `together`: the ranks whose sum over a token goes back as one.
  const auto send_header = [&](Parcels& parcels, int64_t to, const SourceRows& rows, const A* gates_Tk,
                               std::span<const int> together) {
    gates.push_back(values_of<A>(rows, to, [&](int32_t slot) { return gates_Tk[slot]; }));
    d.send_values(parcels, to, rows, gates.back().data());
    if (plan.topology() == Topology::plain) return;
    const std::vector<bool> alone = marks ? rows.alone_on(together) : std::vector<bool>();
    tokens.push_back(values_of<int32_t>(rows, to, [&](int32_t slot) {
      const int32_t token = slot / static_cast<int32_t>(plan.top_k);
      return marks && alone[static_cast<size_t>(token)] ? ~token : token;
    }));
    d.send_values(parcels, to, rows, tokens.back().data());
  };
  const auto receive_header = [&](Parcels& parcels, int64_t from, int64_t source, bool whose) {
    d.receive_values(parcels, from, source, g_S);
    if (whose) d.receive_values(parcels, from, source, token_S);
  };

  if (!d.over_nodes()) {
    const bool plain = plan.topology() == Topology::plain;
    Parcels parcels;
    for (int64_t r = 0; r < plan.ranks; ++r) {
      const int to = static_cast<int>(r);
      send_header(parcels, r, d.own, g_Tk, {&to, 1});
      receive_header(parcels, r, r, !plain);
    }
    if (plain) d.plain_rows(parcels);
    parcels.exchange(communicator);
    if (!plain) d.rank_rows();
    return;
  }

  // Experts and gates of all tokens to every node; then the chosen rows of each rank are known there.
  Passing passing(plan, d.places);
  std::vector<A> gates_Qk(static_cast<size_t>(passing.first.back() * plan.top_k));
  Parcels headers;
  for (int n = 0; n < d.places.nodes(); ++n) {
    const int gate = d.places.gate_of(d.places.self, n);
    headers.send(gate, plan.experts_Tk, plan.tokens * plan.top_k);
    headers.send(gate, g_Tk, plan.tokens * plan.top_k);
  }
  for (size_t i = 0; i < passing.sources.size(); ++i) {
    const int64_t at = passing.first[i] * plan.top_k, count = passing.first[i + 1] * plan.top_k - at;
    headers.receive(passing.sources[i], passing_Qk + at, count);
    headers.receive(passing.sources[i], gates_Qk.data() + at, count);
  }
  headers.exchange(communicator);
  passing.read(plan);
  Parcels across;
  d.rows_across(across, passing);
  const std::vector<int>& members = d.places.members[static_cast<size_t>(d.places.own_node())];
  for (const int member : members) {
    for (size_t i = 0; i < passing.sources.size(); ++i) {
      send_header(across, member, passing.rows[i], gates_Qk.data() + passing.first[i] * plan.top_k, members);
    }
    for (const int s : d.places.sources_of(member)) receive_header(across, member, s, true);
  }
  across.exchange(communicator);
  d.rows_within(passing);
}

void dispatch(const KernelCall& call) {
  call.in[1].dtype == Dtype::f64 ? dispatch_with_gates<double>(call) : dispatch_with_gates<float>(call);
}

void collect_dgrad(const KernelCall& call) {
  RoutingPlan plan(call.in[1], call.in[2], call.in[3], call.op->attributes.integer("slices"));
  plan.token_S = call.in[5].as<const int32_t>();
  plan.passing_Qk = call.in[6].as<const int32_t>();
  const Dispatch d(call, plan);
  Parcels parcels;
  if (!d.over_nodes()) {
    if (plan.topology() == Topology::rank) return d.rank_rows();
    d.plain_rows(parcels);
    return parcels.exchange(*call.communicator);
  }
  Passing passing(plan, d.places);
  passing.read(plan);
  d.rows_across(parcels, passing);
  parcels.exchange(*call.communicator);
  d.rows_within(passing);
}

int64_t passing_bytes(const ir::Stage& stage, const ir::Op& op, const ir::RowCounts& rows) {
  const ir::Value& x = stage.value(op.in[0]);
  const ir::ValueId route = op.in[op.kind() == "dispatch" ? 4 : 3];
  return rows.rows(route) * x.shape.back().count * size_of(x.dtype);
}

}  // namespace

const std::vector<Collective>& dispatch_kernels() {
  static const std::vector<Collective> list{{"dispatch", dispatch, passing_bytes},
                                            {"collect_dgrad", collect_dgrad, passing_bytes}};
  return list;
}

}  // namespace heddle::comm

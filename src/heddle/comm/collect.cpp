// collect and dispatch_dgrad: for each token the sum over its experts (and their slices) of what they made of it.
//
// Every topology forms the same sum, in the tree of device/merge_tree.h: leaves have the key (node, slot, expert),
// so that the leaves of a rank, and those of a node, are summed among themselves first. Leaves and partial sums are
// of type A; where rows go back one by one (plain), or a sum has one row only, it travels as X, and its gate is
// applied at the end of the way.
#include <algorithm>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/comm/exchange_kernels.h"
#include "heddle/comm/parcels.h"
#include "heddle/comm/row_lists.h"
#include "heddle/device/merge_tree.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

/// The operands of both ops.
struct Operands {
  TensorView rows_SH, sum_TH;
  bool weighed = false;  // collect
  TensorView g_S, g_Tk, residual_TH;
  bool with_gates = false;  // dispatch_dgrad
  TensorView dg_S, dg_Tk;
};

/// Rows that take part in one sum.
struct Leaf {
  int64_t key;
  const void* row;
  bool is_row;   // of type X, as an expert made it; else a sum of type A
  int64_t slot;  // of a row: whose gate applies
};

template <class X, class A>
class Collect {
 public:
  Collect(const KernelCall& call, const RoutingPlan& plan, const Operands& operands)
      : plan_(plan),
        communicator_(*call.communicator),
        places_(communicator_),
        own_(plan, plan.experts_Tk, plan.tokens),
        o_(operands),
        width_(operands.rows_SH.columns()),
        sum_(width_),
        scratch_(call.scratch) {}

  void run() {
    if (plan_.topology() == Topology::plain) {
      plain();
    } else if (plan_.topology() == Topology::rank) {
      by_rank();
    } else {
      by_node();
    }
  }

 private:
  const X* row(int64_t s) const { return o_.rows_SH.as<const X>() + s * width_; }

  template <class T>
  T* take(int64_t rows) {  // from scratch
    auto* at = reinterpret_cast<T*>(scratch_);
    scratch_ += rows * width_ * static_cast<int64_t>(sizeof(T));
    return at;
  }

  /// The leaves of a token's sum at its source, in any order.
  void finish(int64_t t, std::vector<Leaf>& leaves) {
    std::sort(leaves.begin(), leaves.end(), [](const Leaf& a, const Leaf& b) { return a.key < b.key; });
    keys_.clear();
    for (const Leaf& leaf : leaves) keys_.push_back(leaf.key);
    sum_.begin(keys_);
    for (const Leaf& leaf : leaves) {
      if (!leaf.is_row) {
        sum_.add(static_cast<const A*>(leaf.row));
      } else if (o_.weighed) {
        sum_.add(static_cast<const X*>(leaf.row), o_.g_Tk.as<const A>()[leaf.slot]);
      } else {
        sum_.add(static_cast<const X*>(leaf.row));
      }
    }
    const A* total = sum_.total();
    X* to = o_.sum_TH.as<X>() + t * width_;
    if (o_.residual_TH) {
      const X* residual = o_.residual_TH.as<const X>() + t * width_;
      for (int64_t h = 0; h < width_; ++h) to[h] = X(total[h] + static_cast<A>(residual[h]));
    } else {
      for (int64_t h = 0; h < width_; ++h) to[h] = X(total[h]);
    }
    leaves.clear();
  }

  // Rows of this rank go back to their source in blocks of (expert, source); they come home by (rank, expert,
  // token).
  template <class T>
  void send_blocks(Parcels& parcels, const T* values_S, int64_t each) const {
    const std::vector<int64_t> block = Arrivals::blocks(plan_);
    for (int64_t b = 0; b + 1 < std::ssize(block); ++b) {
      const auto i = static_cast<size_t>(b);
      parcels.send(b % plan_.ranks, values_S + block[i] * each, (block[i + 1] - block[i]) * each);
    }
  }
  template <class T>
  void receive_blocks(Parcels& parcels, T* values_R, int64_t each) const {
    for (int64_t r = 0; r < plan_.ranks; ++r) {
      for (int64_t e = 0; e < plan_.experts_each; ++e) {
        const auto count = static_cast<int64_t>(own_.of(r, e).size()) * each;
        parcels.receive(r, values_R, count);
        values_R += count;
      }
    }
  }
  std::vector<int64_t> first_of_rank() const {  // among the R rows that come home
    std::vector<int64_t> first{0};
    for (int64_t r = 0; r < plan_.ranks; ++r) first.push_back(first.back() + std::ssize(own_.of(r)));
    return first;
  }
  void sum_gates(const std::vector<A>& dg_R) const {
    const std::vector<int64_t> first = first_of_rank();
    for (int64_t slot = 0; slot < plan_.tokens * plan_.top_k; ++slot) {
      A sum = 0;
      for (int64_t s = 0; s < plan_.slices; ++s) {
        const int64_t r = plan_.rank_of(plan_.experts_Tk[slot], s);
        sum += dg_R[static_cast<size_t>(first[static_cast<size_t>(r)] + own_.index_of(slot))];
      }
      o_.dg_Tk.as<A>()[slot] = sum;
    }
  }

  void plain() {
    const std::vector<int64_t> first = first_of_rank();
    X* home_RH = take<X>(first.back());
    std::vector<A> dg_R(o_.with_gates ? static_cast<size_t>(first.back()) : 0);
    Parcels parcels;
    if (o_.with_gates) {
      send_blocks(parcels, o_.dg_S.as<const A>(), 1);
      receive_blocks(parcels, dg_R.data(), 1);
    }
    send_blocks(parcels, row(0), width_);
    receive_blocks(parcels, home_RH, width_);
    parcels.exchange(communicator_);
    const auto keys_each = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(plan_.experts_each)));
    std::vector<Leaf> leaves;
    for (int64_t t = 0; t < plan_.tokens; ++t) {
      for (int64_t slot = t * plan_.top_k; slot < (t + 1) * plan_.top_k; ++slot) {
        for (int64_t s = 0; s < plan_.slices; ++s) {
          const int64_t expert = plan_.experts_Tk[slot], r = plan_.rank_of(expert, s);
          const int64_t at = first[static_cast<size_t>(r)] + own_.index_of(slot);
          leaves.push_back({places_.key_of(static_cast<int>(r)) * keys_each + plan_.index_of(expert),
                            home_RH + at * width_, true, slot});
        }
      }
      finish(t, leaves);
    }
    if (o_.with_gates) sum_gates(dg_R);
  }

  /// The sum of each arrived token over the experts of this rank, by (source, token).
  const A* sums_of_rank(const Arrivals& arrivals) {
    A* partial_UH = take<A>(std::ssize(arrivals.of_token) - 1);
    for (size_t t = 0; t + 1 < arrivals.of_token.size(); ++t) {
      const auto first = static_cast<size_t>(arrivals.of_token[t]),
                 end = static_cast<size_t>(arrivals.of_token[t + 1]);
      keys_.assign(arrivals.expert.begin() + static_cast<int64_t>(first),
                   arrivals.expert.begin() + static_cast<int64_t>(end));
      sum_.begin(keys_);
      for (size_t i = first; i < end; ++i) {
        const int64_t s = arrivals.row[i];
        o_.weighed ? sum_.add(row(s), o_.g_S.as<const A>()[s]) : sum_.add(row(s));
      }
      std::copy_n(sum_.total(), width_, partial_UH + static_cast<int64_t>(t) * width_);
    }
    return partial_UH;
  }

  /// What of each token goes back to where it came from: its sum, or the one row.
  void send_sums(Parcels& parcels, int64_t to, int64_t source, const Arrivals& arrivals,
                 const A* partial_UH) const {
    const auto s = static_cast<size_t>(source);
    for (int64_t t = arrivals.of_source[s]; t < arrivals.of_source[s + 1]; ++t) {
      const auto at = static_cast<size_t>(t);
      if (arrivals.alone[at]) {
        parcels.send(to, row(arrivals.row[static_cast<size_t>(arrivals.of_token[at])]), width_);
      } else {
        parcels.send(to, partial_UH + t * width_, width_);
      }
    }
  }
  /// A row or a sum, into a place for a sum.
  void receive_sum(Parcels& parcels, int64_t from, A* to, bool is_row) const {
    parcels.receive(from, static_cast<void*>(to), width_ * static_cast<int64_t>(is_row ? sizeof(X) : sizeof(A)));
  }
  std::vector<bool> alone_on(const SourceRows& rows, std::span<const int> ranks) const {
    if (rows_go_back_alone(plan_.topology(), o_.rows_SH.dtype)) return rows.alone_on(ranks);
    return std::vector<bool>(static_cast<size_t>(rows.tokens()), false);
  }
  /// A slot of token t with an expert on one of these ranks.
  int64_t slot_on(int64_t t, std::span<const int> ranks) const {
    for (int64_t slot = t * plan_.top_k; slot < (t + 1) * plan_.top_k; ++slot) {
      for (const int r : ranks) {
        if (plan_.experts_Tk[slot] / plan_.experts_each == r / plan_.slices) return slot;
      }
    }
    internal_error("token {} has no expert where its row came from", t);
  }

  void by_rank() {
    const Arrivals arrivals(plan_);
    const A* partial_UH = sums_of_rank(arrivals);
    std::vector<int64_t> next{0};  // of each rank among the sums that come home
    for (int64_t r = 0; r < plan_.ranks; ++r) next.push_back(next.back() + std::ssize(own_.tokens_on(r)));
    A* home = take<A>(next.back());
    std::vector<A> dg_R(o_.with_gates ? static_cast<size_t>(first_of_rank().back()) : 0);
    Parcels parcels;
    if (o_.with_gates) {
      send_blocks(parcels, o_.dg_S.as<const A>(), 1);
      receive_blocks(parcels, dg_R.data(), 1);
    }
    std::vector<std::vector<bool>> alone;  // by rank
    for (int r = 0; r < plan_.ranks; ++r) {
      const auto s = static_cast<size_t>(r);
      alone.push_back(alone_on(own_, {&r, 1}));
      send_sums(parcels, r, r, arrivals, partial_UH);
      A* to = home + next[s] * width_;
      for (const int32_t t : own_.tokens_on(r)) {
        receive_sum(parcels, r, to, alone.back()[static_cast<size_t>(t)]);
        to += width_;
      }
    }
    parcels.exchange(communicator_);
    std::vector<Leaf> leaves;
    std::vector<std::span<const int32_t>> left;  // tokens whose sums are not used yet, by rank
    for (int64_t r = 0; r < plan_.ranks; ++r) left.push_back(own_.tokens_on(r));
    for (int64_t t = 0; t < plan_.tokens; ++t) {
      for (size_t r = 0; r < left.size(); ++r) {
        if (left[r].empty() || left[r].front() != t) continue;
        left[r] = left[r].subspan(1);
        const int rank = static_cast<int>(r);
        const bool is_row = alone[r][static_cast<size_t>(t)];
        leaves.push_back(
            {places_.key_of(rank), home + next[r]++ * width_, is_row, is_row ? slot_on(t, {&rank, 1}) : 0});
      }
      finish(t, leaves);
    }
    if (o_.with_gates) sum_gates(dg_R);
  }

  void by_node() {
    const Arrivals arrivals(plan_);
    Passing passing(plan_, places_);
    passing.read(plan_);
    const std::vector<int>& members = places_.members[static_cast<size_t>(places_.own_node())];
    const A* partial_UH = sums_of_rank(arrivals);

    // Within the node: sums of ranks, by (rank, source, token), to the rank that took the tokens in.
    std::vector<int64_t> next{0};  // by (rank, source)
    for (const int r : members) {
      for (const SourceRows& rows : passing.rows) next.push_back(next.back() + std::ssize(rows.tokens_on(r)));
    }
    A* forwarded = take<A>(next.back());
    std::vector<std::vector<bool>> alone;  // on this node, by source
    for (const SourceRows& rows : passing.rows) alone.push_back(alone_on(rows, members));
    GatesByNode gates(*this, passing, members);
    Parcels within;
    for (size_t m = 0; m < members.size(); ++m) {
      for (const int source : places_.sources_of(members[m])) {
        gates.send_within(within, members[m], source);
        send_sums(within, members[m], source, arrivals, partial_UH);
      }
      for (size_t i = 0; i < passing.sources.size(); ++i) {
        const size_t at = m * passing.sources.size() + i;
        gates.receive_within(within, m, i);
        A* to = forwarded + next[at] * width_;
        for (const int32_t t : passing.rows[i].tokens_on(members[m])) {
          receive_sum(within, members[m], to, alone[i][static_cast<size_t>(t)]);
          to += width_;
        }
      }
    }
    within.exchange(communicator_);

    // The sums of this node.
    A* sums_QH = take<A>(passing.first.back());
    A* blank = take<A>(1);
    std::fill_n(blank, width_, A(0));
    std::vector<std::vector<int32_t>> there;  // tokens of each source with a row on this node
    for (size_t i = 0; i < passing.sources.size(); ++i) {
      std::vector<std::span<const int32_t>> left;
      for (const int r : members) left.push_back(passing.rows[i].tokens_on(r));
      there.push_back(passing.rows[i].tokens_on_node(places_, places_.own_node()));
      for (const int32_t t : there.back()) {
        keys_.clear();
        std::vector<const A*> rows;
        for (size_t m = 0; m < members.size(); ++m) {
          if (left[m].empty() || left[m].front() != t) continue;
          left[m] = left[m].subspan(1);
          keys_.push_back(static_cast<int64_t>(m));
          rows.push_back(forwarded + next[m * passing.sources.size() + i]++ * width_);
        }
        A* to = sums_QH + (passing.first[i] + t) * width_;
        if (alone[i][static_cast<size_t>(t)]) {
          std::memcpy(to, rows[0], static_cast<size_t>(width_) * sizeof(X));
          continue;
        }
        sum_.begin(keys_);
        for (const A* r : rows) sum_.add(r);
        std::copy_n(sum_.total(), width_, to);
      }
    }

    // Across nodes: home. With merge every token has a row from every node, blank where it has no expert there.
    const bool all = plan_.topology() == Topology::merge;
    std::vector<std::vector<int32_t>> home_tokens;  // by node
    int64_t home_rows = 0;
    for (int n = 0; n < places_.nodes(); ++n) {
      home_tokens.push_back(own_.tokens_on_node(places_, n));
      home_rows += std::ssize(home_tokens.back());
    }
    A* home = take<A>(home_rows);
    A* ignored = take<A>(1);
    Parcels across;
    const auto in_order = [&](const std::vector<int32_t>& tokens, int64_t count, auto chosen, auto other) {
      size_t i = 0;
      for (int32_t t = 0; t < count; ++t) {
        if (i < tokens.size() && tokens[i] == t) {
          chosen(t);
          ++i;
        } else if (all) {
          other();
        }
      }
    };
    for (size_t i = 0; i < passing.sources.size(); ++i) {
      const int source = passing.sources[i];
      gates.send_across(across, i);
      in_order(
          there[i], passing.rows[i].tokens(),
          [&](int32_t t) {
            const bool is_row = alone[i][static_cast<size_t>(t)];
            across.send(source, static_cast<const void*>(sums_QH + (passing.first[i] + t) * width_),
                        width_ * static_cast<int64_t>(is_row ? sizeof(X) : sizeof(A)));
          },
          [&] { across.send(source, blank, width_); });
    }
    A* at = home;
    std::vector<std::vector<bool>> own_alone;  // by node
    for (int n = 0; n < places_.nodes(); ++n) {
      own_alone.push_back(alone_on(own_, places_.members[static_cast<size_t>(n)]));
      const int gate = places_.gate_of(places_.self, n);
      gates.receive_across(across, n);
      in_order(
          home_tokens[static_cast<size_t>(n)], plan_.tokens,
          [&](int32_t t) {
            receive_sum(across, gate, at, own_alone.back()[static_cast<size_t>(t)]);
            at += width_;
          },
          [&] { across.receive(gate, ignored, width_); });
    }
    across.exchange(communicator_);
    std::vector<Leaf> leaves;
    std::vector<const A*> row_of;
    std::vector<std::span<const int32_t>> left;
    for (const std::vector<int32_t>& tokens : home_tokens) {
      row_of.push_back(row_of.empty() ? home : row_of.back() + std::ssize(left.back()) * width_);
      left.emplace_back(tokens);
    }
    for (int64_t t = 0; t < plan_.tokens; ++t) {
      for (size_t n = 0; n < left.size(); ++n) {
        if (left[n].empty() || left[n].front() != t) continue;
        left[n] = left[n].subspan(1);
        const bool is_row = own_alone[n][static_cast<size_t>(t)];
        leaves.push_back({static_cast<int64_t>(n), row_of[n], is_row, is_row ? slot_on(t, places_.members[n]) : 0});
        row_of[n] += width_;
      }
      finish(t, leaves);
    }
    gates.finish();
  }

  // Gradients of gates by the same way: within the node by rows, across as one number a (token, slot, slice), so
  // that what crosses is regular. Nothing happens where there are none.
  class GatesByNode {
   public:
    GatesByNode(const Collect& c, const Passing& passing, const std::vector<int>& members)
        : c_(c),
          passing_(passing),
          members_(members),
          block_(Arrivals::blocks(c.plan_)),
          each_(c.plan_.top_k * c.plan_.slices) {
      if (!c.o_.with_gates) return;
      arrived_.resize(members.size() * passing.sources.size());
      for (size_t i = 0; i < passing.sources.size(); ++i) {
        for (size_t m = 0; m < members.size(); ++m) {
          arrived_[m * passing.sources.size() + i].resize(passing.rows[i].of(members[m]).size());
        }
      }
      home_.resize(static_cast<size_t>(c.places_.nodes()));
      for (std::vector<A>& values : home_) values.resize(static_cast<size_t>(c.plan_.tokens * each_));
    }
    void send_within(Parcels& parcels, int gate, int source) const {
      if (!c_.o_.with_gates) return;
      for (int64_t e = 0; e < c_.plan_.experts_each; ++e) {
        const auto b = static_cast<size_t>(e * c_.plan_.ranks + source);
        parcels.send(gate, c_.o_.dg_S.template as<const A>() + block_[b], block_[b + 1] - block_[b]);
      }
    }
    void receive_within(Parcels& parcels, size_t m, size_t i) {
      if (!c_.o_.with_gates) return;
      A* to = arrived_[m * passing_.sources.size() + i].data();
      for (int64_t e = 0; e < c_.plan_.experts_each; ++e) {
        const auto count = static_cast<int64_t>(passing_.rows[i].of(members_[m], e).size());
        parcels.receive(members_[m], to, count);
        to += count;
      }
    }
    void send_across(Parcels& parcels, size_t i) {
      if (!c_.o_.with_gates) return;
      const SourceRows& rows = passing_.rows[i];
      std::vector<A>& values = leaving_.emplace_back(static_cast<size_t>(rows.tokens() * each_), A(0));
      for (size_t m = 0; m < members_.size(); ++m) {
        const std::span<const int32_t> slots = rows.of(members_[m]);
        const int64_t slice = members_[m] % c_.plan_.slices;
        for (size_t at = 0; at < slots.size(); ++at) {
          values[static_cast<size_t>(slots[at] * c_.plan_.slices + slice)] =
              arrived_[m * passing_.sources.size() + i][at];
        }
      }
      parcels.send(passing_.sources[i], values.data(), std::ssize(values));
    }
    void receive_across(Parcels& parcels, int n) {
      if (!c_.o_.with_gates) return;
      std::vector<A>& values = home_[static_cast<size_t>(n)];
      parcels.receive(c_.places_.gate_of(c_.places_.self, n), values.data(), std::ssize(values));
    }
    void finish() const {
      if (!c_.o_.with_gates) return;
      const RoutingPlan& plan = c_.plan_;
      for (int64_t slot = 0; slot < plan.tokens * plan.top_k; ++slot) {
        A sum = 0;
        for (int64_t s = 0; s < plan.slices; ++s) {
          const auto rank = static_cast<size_t>(plan.rank_of(plan.experts_Tk[slot], s));
          sum += home_[static_cast<size_t>(c_.places_.node[rank])][static_cast<size_t>(slot * plan.slices + s)];
        }
        c_.o_.dg_Tk.template as<A>()[slot] = sum;
      }
    }

   private:
    const Collect& c_;
    const Passing& passing_;
    const std::vector<int>& members_;
    std::vector<int64_t> block_;
    int64_t each_;
    std::vector<std::vector<A>> arrived_;  // by (member, source): by (expert, token)
    std::vector<std::vector<A>> leaving_;  // kept until the exchange has ended
    std::vector<std::vector<A>> home_;     // by node
  };

  RoutingPlan plan_;
  Communicator& communicator_;
  Places places_;
  SourceRows own_;
  Operands o_;
  int64_t width_;
  device::TreeSum<A> sum_;
  std::byte* scratch_;
  std::vector<int64_t> keys_;
};

void run(const KernelCall& call, size_t lists, const Operands& operands) {
  RoutingPlan plan(call.in[lists], call.in[lists + 1], call.in[lists + 2], call.op->attributes.integer("slices"));
  plan.token_S = call.in[lists + 4].as<const int32_t>();
  plan.passing_Qk = call.in[lists + 5].as<const int32_t>();
  switch (operands.rows_SH.dtype) {
    case Dtype::f64: return Collect<double, double>(call, plan, operands).run();
    case Dtype::f32: return Collect<float, float>(call, plan, operands).run();
    case Dtype::bf16: return Collect<bf16, float>(call, plan, operands).run();
    default: internal_error("rows of {}", name_of(operands.rows_SH.dtype));
  }
}

void collect(const KernelCall& call) {
  Operands o;
  o.rows_SH = call.in[0];
  o.weighed = true;
  o.g_S = call.in[1];
  o.g_Tk = call.in[2];
  if (call.in.size() > 9) o.residual_TH = call.in[9];
  o.sum_TH = call.out[0];
  run(call, 3, o);
}

void dispatch_dgrad(const KernelCall& call) {
  Operands o;
  o.rows_SH = call.in[0];
  o.with_gates = true;
  o.dg_S = call.in[1];
  o.sum_TH = call.out[0];
  o.dg_Tk = call.out[1];
  run(call, 2, o);
}

// By S rows here, R rows that this rank's tokens have, F sums forwarded here and Q tokens passing through.
int64_t sums_bytes(const ir::Stage& stage, const ir::Op& op, const ir::RowCounts& rows) {
  const size_t lists = op.kind() == "collect" ? 3 : 2;
  const ir::Value& x = stage.value(op.in[0]);
  const int64_t width = x.shape.back().count;
  const int64_t home = stage.elements(op.in[lists], rows) * op.attributes.integer("slices");
  if (op.attributes.word("topology") == "plain") return home * width * size_of(x.dtype);
  const int64_t received = rows.rows(op.in[lists + 1]), passing = rows.rows(op.in[lists + 2]);
  const int64_t forwarded = rows.rows(op.in[lists + 3]);
  return (received + home + forwarded + passing + 2) * width * (x.dtype == Dtype::f64 ? 8 : 4);
}

}  // namespace

const std::vector<Collective>& collect_kernels() {
  static const std::vector<Collective> list{{"collect", collect, sums_bytes},
                                            {"dispatch_dgrad", dispatch_dgrad, sums_bytes}};
  return list;
}

}  // namespace heddle::comm

// Selection of keys, attention to those that are chosen, and the loss of the indexer (ops/selection.cpp).
//
// T rows of queries, S positions, c columns of `chosen`. An index score is scale · Σ_h w_h · relu(q_h·k), with sums
// in increasing column and head. Attention is that of attention.cpp, whose sums go over the chosen keys in
// increasing position. So it has the same bits where all keys are chosen.
//   share:     Σ_h exp(scale·q_h·k − lse_h)
//   loss:      p = share ÷ Σ share, i = softmax(I), loss = weight · Σ p·(ln p − ln i)
//   backward:  dI = factor · weight · (i − p), dw_h = scale · Σ_s dI·relu(q_h·k_s),
//              dq_h = scale · w_h · Σ_s dI·[q_h·k_s > 0]·k_s, dk_s = scale · Σ_t,h w_h·dI·[q_h·k_s > 0]·q_h
// With lists each head has scores of its own, scale · q_h·k.
#include <cmath>
#include <limits>

#include "heddle/kernels/query_rows.h"
#include "heddle/kernels/reference/operands.h"
#include "heddle/kernels/reference/top.h"

namespace heddle::kernels::reference {
namespace {

template <class A>
A dot(const A* x, const A* y, int64_t width) {
  A sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += x[i] * y[i];
  return sum;
}

/// The keys that query t may read for a key head: the chosen ones, or all that it sees.
class Keys {
 public:
  explicit Keys(const KernelCall& call) : keys_(call) {}
  int64_t most() const { return keys_.most(); }
  int64_t lists() const { return keys_.lists; }
  void find(int64_t t, int64_t list = 0) {
    base_ = keys_.rows.base(t);
    list_ = keys_.of(t, list);
  }

  /// The slots that hold a key; and its row.
  int64_t begin() const { return list_.begin; }
  int64_t end() const { return list_.end; }
  int64_t row(int64_t j) const { return base_ + list_.position(j); }

 private:
  ChosenKeys keys_;
  ChosenKeys::List list_{};
  int64_t base_ = 0;
};

/// q, k and w of an indexer, which lead the operands.
template <class A>
struct Indexer {
  explicit Indexer(const KernelCall& call)
      : h(call.op->attributes.integer("heads")),
        d(call.op->attributes.integer("head_dim")),
        T(call.in[0].dim(0)),
        apart(call.op->attributes.has("lists")),
        scale(static_cast<A>(call.op->attributes.number("scale"))),
        q(call.in[0]),
        k(call.in[1]),
        w(named_operand(call, "w")) {}
  /// The score of all heads together; where each has a list, that of the one.
  A score(int64_t t, int64_t key, int64_t list = 0) const {
    if (apart) return scale * dot(q.at((t * h + list) * d), k.at(key * d), d);
    A sum = 0;
    for (int64_t j = 0; j < h; ++j) {
      const A s = std::max(A(0), dot(q.at((t * h + j) * d), k.at(key * d), d));
      sum += w ? w[t * h + j] * s : s;
    }
    return scale * sum;
  }
  int64_t h, d, T;
  bool apart;
  A scale;
  Input<A> q, k, w;
};

template <class A>
void choose_keys(const KernelCall& call) {
  const Indexer<A> indexer(call);
  const QueryRows rows(call);
  const int64_t count = call.out[0].dim(1);
  auto* chosen = call.out[0].as<int32_t>();
  std::vector<A> scores;
  for (int64_t t = 0; t < indexer.T; ++t, chosen += count) {
    const int64_t first = rows.first(t), seen = rows.seen(t);
    scores.clear();
    for (int64_t n = first; n < seen; ++n) scores.push_back(indexer.score(t, rows.base(t) + n));
    std::vector<int64_t> best = top_in_order<A>(scores, count);
    std::sort(best.begin(), best.end());
    std::fill_n(chosen, count, -1);
    for (size_t j = 0; j < best.size(); ++j) chosen[j] = static_cast<int32_t>(first + best[j]);
  }
}

/// The score of a block is the greatest of those of its keys.
template <class A>
void choose_blocks(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t h = a.integer("heads"), d = a.integer("head_dim"), count = a.integer("top_k");
  const int64_t block = a.integer("block"), local = a.integer_or("local", 0);
  const Input<A> q(call.in[0]), k(call.in[1]);
  const QueryRows rows(call);
  constexpr A kMost = std::numeric_limits<A>::infinity();
  auto* chosen = call.out[0].as<int32_t>();
  for (int64_t row = 0; row < call.in[0].dim(0) * h; ++row, chosen += count) {
    const int64_t t = row / h, start = rows.start(t), seen = rows.positions(t);
    const int64_t first = start / block, last = seen == 0 ? first : (seen - 1) / block + 1;
    std::vector<A> scores(static_cast<size_t>(last - first), -kMost);
    for (int64_t n = start; n < seen; ++n) {
      A& most = scores[static_cast<size_t>(n / block - first)];
      most = std::max(most, dot(q.at(row * d), k.at((rows.base(t) + n) * d), d));
    }
    for (int64_t b = std::max(first, last - local); b < last; ++b) scores[static_cast<size_t>(b - first)] = kMost;
    std::vector<int64_t> best = top_in_order<A>(scores, count);
    std::sort(best.begin(), best.end());
    std::fill_n(chosen, count, -1);
    for (size_t j = 0; j < best.size(); ++j) chosen[j] = static_cast<int32_t>(first + best[j]);
  }
}

struct Heads {
  explicit Heads(const ir::Attributes& a)
      : h(a.integer("heads")),
        hk(a.integer("kv_heads")),
        d(a.integer("head_dim")),
        v(a.integer_or("value_dim", 0)),
        scale(a.number("scale")) {}
  int64_t h, hk, d, v;
  double scale;
};

/// scale·q·k of the query with each of its keys; the greatest.
template <class A>
A scores(const Keys& keys, const A* q_d, const Input<A>& k, const Heads& heads, int64_t kv, A* s) {
  A most = -std::numeric_limits<A>::infinity();
  for (int64_t j = keys.begin(); j < keys.end(); ++j) {
    s[j] = dot(q_d, k.at((keys.row(j) * heads.hk + kv) * heads.d), heads.d) * static_cast<A>(heads.scale);
    most = std::max(most, s[j]);
  }
  return most;
}

template <class A>
void chosen_attention(const KernelCall& call) {
  const Heads heads(call.op->attributes);
  const auto [h, hk, d, v, scale] = heads;
  Keys keys(call);
  const Input<A> q(call.in[0]), k(call.in[1]), values(operand(call.in, 2)), sinks(operand(call.in, 5));
  const Output<A> o(call.out[0]), lse(call.out[1]);
  std::vector<A> s(static_cast<size_t>(keys.most()));
  for (int64_t row = 0; row < call.in[0].dim(0) * h; ++row) {
    const int64_t t = row / h, kv = row % h / (h / hk);
    keys.find(t, kv);
    A* o_v = o.at(row * v);
    std::fill_n(o_v, v, A(0));
    lse[row] = -std::numeric_limits<A>::infinity();
    A most = scores(keys, q.at(row * d), k, heads, kv, s.data());
    if (keys.end() == keys.begin()) continue;
    if (sinks) most = std::max(most, sinks[row % h]);
    A sum = sinks ? std::exp(sinks[row % h] - most) : A(0);
    for (int64_t j = keys.begin(); j < keys.end(); ++j) {
      const A p = std::exp(s[j] - most);
      const int64_t key = keys.row(j) * hk + kv;
      const A* value_v = values ? values.at(key * v) : k.at(key * d);
      sum += p;
      for (int64_t i = 0; i < v; ++i) o_v[i] += p * value_v[i];
    }
    for (int64_t i = 0; i < v; ++i) o_v[i] /= sum;
    lse[row] = most + std::log(sum);
  }
}

/// In: do, q, k, v, o, lse, chosen.
template <class A>
void chosen_attention_dgrad(const KernelCall& call) {
  const Heads heads(call.op->attributes);
  const auto [h, hk, d, v, scale] = heads;
  Keys keys(call);
  const Input<A> d_o(call.in[0]), q(call.in[1]), k(call.in[2]), values(call.in[3]), o(call.in[4]), lse(call.in[5]);
  const Output<A> dq(call.out[0]), dk(call.out[1]), dv(call.out[2]);
  dk.fill(A(0));
  dv.fill(A(0));
  std::vector<A> s(static_cast<size_t>(keys.most()));
  for (int64_t head = 0; head < h; ++head) {
    const int64_t kv = head / (h / hk);
    for (int64_t t = 0; t < call.in[1].dim(0); ++t) {
      keys.find(t, kv);
      const int64_t row = t * h + head;
      const A *q_d = q.at(row * d), *do_v = d_o.at(row * v);
      A* dq_d = dq.at(row * d);
      std::fill_n(dq_d, d, A(0));
      scores(keys, q_d, k, heads, kv, s.data());
      const A delta = dot(do_v, o.at(row * v), v);
      for (int64_t j = keys.begin(); j < keys.end(); ++j) {
        const int64_t key = keys.row(j) * hk + kv;
        const A p = std::exp(s[j] - lse[row]);
        const A ds = p * (dot(do_v, values.at(key * v), v) - delta) * static_cast<A>(scale);
        const A* k_d = k.at(key * d);
        A *dk_d = dk.at(key * d), *dv_v = dv.at(key * v);
        for (int64_t i = 0; i < d; ++i) dq_d[i] += ds * k_d[i];
        for (int64_t i = 0; i < d; ++i) dk_d[i] += ds * q_d[i];
        for (int64_t i = 0; i < v; ++i) dv_v[i] += p * do_v[i];
      }
    }
  }
}

template <class A>
void attention_share(const KernelCall& call) {
  const Heads heads(call.op->attributes);
  const ShareColumns columns(call);
  Keys keys(call);
  const Input<A> q(call.in[0]), k(call.in[1]), lse(call.in[2]);
  const Output<A> share(call.out[0]);
  share.fill(A(0));
  std::vector<A> s(static_cast<size_t>(keys.most()));
  for (int64_t t = 0; t < call.in[0].dim(0); ++t) {
    for (int64_t list = 0; list < keys.lists(); ++list) {
      keys.find(t, list);
      A* of_list = share.at((t * keys.lists() + list) * columns.of_list);
      for (int64_t head = list * columns.heads; head < (list + 1) * columns.heads; ++head) {
        const int64_t row = t * heads.h + head;
        scores(keys, q.at(row * heads.d), k, heads, head / (heads.h / heads.hk), s.data());
        for (int64_t j = keys.begin(); j < keys.end(); ++j) of_list[j / columns.width] += std::exp(s[j] - lse[row]);
      }
    }
  }
}

/// It holds a query's index scores and the attention's share of each key of a list, both as distributions.
template <class A>
struct Divergence {
  explicit Divergence(const KernelCall& call)
      : indexer(call), keys(call), share(call.in[3]), p(keys.most()), i(p) {}

  /// Fills p and i of query t, at its keys' slots, and returns KL(p ‖ i).
  double of(int64_t t, int64_t list) {
    keys.find(t, list);
    const int64_t begin = keys.begin(), end = keys.end();
    const A* of_list = share.at((t * keys.lists() + list) * keys.most());
    A total = 0, most = -std::numeric_limits<A>::infinity(), sum = 0;
    for (int64_t j = begin; j < end; ++j) {
      total += of_list[j];
      i[j] = indexer.score(t, keys.row(j), list);
      most = std::max(most, i[j]);
    }
    for (int64_t j = begin; j < end; ++j) sum += std::exp(i[j] - most);
    const A lse = most + std::log(sum);
    double divergence = 0;
    for (int64_t j = begin; j < end; ++j) {
      const A log_i = i[j] - lse;
      i[j] = std::exp(log_i);
      p[j] = total > 0 ? of_list[j] / total : i[j];
      if (total > 0 && p[j] > 0) divergence += p[j] * (std::log(p[j]) - log_i);
    }
    return divergence;
  }

  Indexer<A> indexer;
  Keys keys;
  Input<A> share;
  std::vector<A> p, i;
};

template <class A>
void index_loss(const KernelCall& call) {
  Divergence<A> divergence(call);
  double loss = 0;
  for (int64_t row = 0; row < divergence.indexer.T * divergence.keys.lists(); ++row)
    loss += divergence.of(row / divergence.keys.lists(), row % divergence.keys.lists());
  call.out[0].as<double>()[0] = call.op->attributes.number("weight") * loss;
}

template <class A>
void index_loss_dgrad(const KernelCall& call) {
  Divergence<A> divergence(call);
  const Indexer<A>& indexer = divergence.indexer;
  const auto [h, d] = std::pair(indexer.h, indexer.d);
  const int64_t lists = divergence.keys.lists();
  const Input<A> scales(call.in[4]);
  const A factor = scales[call.op->attributes.integer("scale_index")] *
                   static_cast<A>(call.op->attributes.number("weight")) * indexer.scale;
  std::vector<Output<A>> out(call.out.begin(), call.out.end());  // dq, dk, and with w dw
  for (const Output<A>& each : out) each.fill(A(0));
  for (int64_t t = 0; t < indexer.T; ++t) {
    for (int64_t list = 0; list < lists; ++list) {
      divergence.of(t, list);
      for (int64_t j = divergence.keys.begin(); j < divergence.keys.end(); ++j) {
        const A d_score = factor * (divergence.i[j] - divergence.p[j]);
        const int64_t key = divergence.keys.row(j);
        const A* k_d = indexer.k.at(key * d);
        A* dk_d = out[1].at(key * d);
        for (int64_t head = list * (h / lists); head < (list + 1) * (h / lists); ++head) {
          const int64_t row = t * h + head;
          const A* q_d = indexer.q.at(row * d);
          A* dq_d = out[0].at(row * d);
          const A s = dot(q_d, k_d, d);
          if (s <= 0 && !indexer.apart) continue;
          if (indexer.w) out[2][row] += d_score * s;
          const A ds = indexer.w ? d_score * indexer.w[row] : d_score;
          for (int64_t i = 0; i < d; ++i) dq_d[i] += ds * k_d[i];
          for (int64_t i = 0; i < d; ++i) dk_d[i] += ds * q_d[i];
        }
      }
    }
  }
}

}  // namespace

std::vector<KernelEntry> selection_kernels() {
  return {
      entry("choose_keys", by_type<in0, choose_keys<float>, choose_keys<double>>),
      entry("choose_blocks", by_type<in0, choose_blocks<float>, choose_blocks<double>>),
      entry("chosen_attention", by_type<in0, chosen_attention<float>, chosen_attention<double>>),
      entry("chosen_attention_dgrad", by_type<in0, chosen_attention_dgrad<float>, chosen_attention_dgrad<double>>),
      entry("attention_share", by_type<in0, attention_share<float>, attention_share<double>>),
      entry("index_loss", by_type<in0, index_loss<float>, index_loss<double>>),
      entry("index_loss_dgrad", by_type<in0, index_loss_dgrad<float>, index_loss_dgrad<double>>)};
}

}  // namespace heddle::kernels::reference

// attention and its gradient, one sequence and one head at a time; whole, or by parts as keys come round a ring.
//
// S keys, Sq queries a sequence, d head dim, v value dim, h query heads, g = h ÷ hk query heads a kv head.
//   forward:   s_j = scale·q·k_j, lse = ln Σ_j exp(s_j), o = Σ_j exp(s_j − max)·v_j ÷ Σ_j exp(s_j − max)
//   a part:    with o', lse' of the parts before: L = ln(exp lse' + exp lse), o ← exp(lse' − L)·o' + exp(lse − L)·o
//   backward:  p_j = exp(s_j − lse), D = do·o, ds_j = p_j·(do·v_j − D)·scale,
//              dq = Σ_j ds_j k_j, dk_j = Σ ds_j q, dv_j = Σ p_j do
// (FlashAttention-2, arXiv 2307.08691; parts: Ring Attention, arXiv 2310.01889). With the lse and o of all keys the
// backward of a part needs nothing of the others. Sums over j are in increasing j. Those of dk_j and dv_j go over
// the g heads, then over the queries, in increasing order. The header seen_keys.h says which keys a query sees. A
// sink is one more score, without a value: exp(sink − max) joins the sum that o is divided by, and lse;
//              dsink = −Σ exp(sink − lse)·D over the queries, in increasing order.
// Dropped probabilities have factors f_j of 0 or 1 ÷ (1 − rate). Then v_j counts f_j times in o, and so do do·v_j
// in ds_j and do in dv_j; lse is that of all keys. With a cap c, s_j is c·tanh(scale·q·k_j ÷ c), and ds_j has the
// factor 1 − tanh².
#include <cmath>
#include <limits>

#include "heddle/kernels/dropped_keys.h"
#include "heddle/kernels/reference/operands.h"
#include "heddle/kernels/seen_keys.h"

namespace heddle::kernels::reference {
namespace {

struct Sizes {
  explicit Sizes(const KernelCall& call)
      : h(call.op->attributes.integer("heads")),
        hk(call.op->attributes.integer("kv_heads")),
        d(call.op->attributes.integer("head_dim")),
        v(call.op->attributes.integer("value_dim")),
        scale(call.op->attributes.number("scale")),
        cap(call.op->attributes.number_or("cap", 0)),
        mask(*call.op, call.place, named_operand(call, "starts").as<const int32_t>()),
        S(mask.keys()),
        Sq(mask.queries()) {}
  int64_t h, hk, d, v;
  /// A score of a product, and its slope there by the product, without the scale.
  template <class A>
  A score(A product) const {
    const A s = product * static_cast<A>(scale), c = static_cast<A>(cap);
    return cap > 0 ? c * std::tanh(s / c) : s;
  }
  template <class A>
  A slope(A score) const {
    const A bent = cap > 0 ? score / static_cast<A>(cap) : A(0);
    return A(1) - bent * bent;
  }
  double scale, cap;
  SeenKeys mask;
  int64_t S, Sq;
};

/// One head of a sequence, transposed: columns_dS[c·S + j] = rows[j·pitch + c].
template <class A>
std::vector<A> transpose_head(const A* rows, int64_t pitch, int64_t S, int64_t width) {
  std::vector<A> columns_dS(static_cast<size_t>(width * S));
  for (int64_t j = 0; j < S; ++j) {
    for (int64_t c = 0; c < width; ++c) columns_dS[c * S + j] = rows[j * pitch + c];
  }
  return columns_dS;
}

/// dots_j = Σ_c x_c·columns[c, j] for first ≤ j < seen, each sum in increasing c.
template <class A>
void dots(const A* x, const std::vector<A>& columns_dS, int64_t width, int64_t S, int64_t first, int64_t seen,
          A* dots_S) {
  std::fill_n(dots_S + first, seen - first, A(0));
  for (int64_t c = 0; c < width; ++c) {
    const A* column = columns_dS.data() + c * S;
    for (int64_t j = first; j < seen; ++j) dots_S[j] += x[c] * column[j];
  }
}

/// The factors of the key rows [first, seen) of a query, whose positions are those of the whole sequence.
template <class A>
void drop(const DroppedKeys& dropped, const SeenKeys& mask, int64_t row, int64_t head, int64_t first, int64_t seen,
          A* factors_S) {
  A four[4];
  for (int64_t n = first, held = -1; n < seen; ++n) {
    const int64_t position = mask.key_position(n);
    if (position / 4 != held) dropped.factors(row, head, (held = position / 4) * 4, 4, four);
    factors_S[n] = four[position % 4];
  }
}

/// Adds to o and lse of some keys those of the keys before them.
template <class A>
void join(const A* before_v, A lse_before, int64_t v, A* o_v, A& lse) {
  const A most = std::max(lse_before, lse);
  const A a = std::exp(lse_before - most), b = std::exp(lse - most), sum = a + b;
  for (int64_t c = 0; c < v; ++c) o_v[c] = (a * before_v[c] + b * o_v[c]) / sum;
  lse = most + std::log(sum);
}

template <class A>
void attention(const KernelCall& call) {
  const Sizes sizes(call);
  const auto& [h, hk, d, v, scale, cap, mask, S, Sq] = sizes;
  const Input<A> q(call.in[0]), k(call.in[1]), value(call.in[2]);
  const Input<A> o_before(named_operand(call, "o_before")), lse_before(named_operand(call, "lse_before"));
  const Input<A> sinks(named_operand(call, "sinks"));
  const int64_t own_sinks = first_sink(*call.op, call.place);
  const int64_t B = call.in[0].dim(0) / Sq;
  const Output<A> o(call.out[0]), lse(call.out[1]);
  std::vector<A> s_S(static_cast<size_t>(S)), f_S(static_cast<size_t>(S), A(1));
  const DroppedKeys dropped(call);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t j = 0; j < h; ++j) {
      const int64_t kv = j / (h / hk);
      const std::vector<A> k_dS = transpose_head(k.at((b * S * hk + kv) * d), hk * d, S, d);
      for (int64_t i = 0; i < Sq; ++i) {
        const int64_t row = (b * Sq + i) * h + j, seen = mask.seen(i), first = std::min(mask.first(b, i), seen);
        A* o_v = o.at(row * v);
        std::fill_n(o_v, v, A(0));
        lse[row] = -std::numeric_limits<A>::infinity();
        if (seen > first) {
          dots(q.at(row * d), k_dS, d, S, first, seen, s_S.data());
          for (int64_t n = first; n < seen; ++n) s_S[n] = sizes.score(s_S[n]);
          A most = *std::max_element(s_S.begin() + first, s_S.begin() + seen);
          if (sinks) most = std::max(most, sinks[own_sinks + j]);
          A sum = sinks ? std::exp(sinks[own_sinks + j] - most) : A(0);
          if (dropped) drop(dropped, mask, b * Sq + i, j, first, seen, f_S.data());
          for (int64_t n = first; n < seen; ++n) {
            const A p = std::exp(s_S[n] - most);
            sum += p;
            const A* value_v = value.at(((b * S + n) * hk + kv) * v);
            const A kept = p * f_S[n];
            for (int64_t c = 0; c < v; ++c) o_v[c] += kept * value_v[c];
          }
          for (int64_t c = 0; c < v; ++c) o_v[c] /= sum;
          lse[row] = most + std::log(sum);
        }
        if (o_before) join(o_before.at(row * v), lse_before[row], v, o_v, lse[row]);
      }
    }
  }
}

/// In: do, q, k, v, o, lse, and for a part the dq of the parts before.
template <class A>
void attention_dgrad(const KernelCall& call) {
  const Sizes sizes(call);
  const auto& [h, hk, d, v, scale, cap, mask, S, Sq] = sizes;
  const Input<A> d_o(call.in[0]), q(call.in[1]), k(call.in[2]), value(call.in[3]), o(call.in[4]), lse(call.in[5]);
  const Input<A> dq_before(named_operand(call, "dq_before"));
  const int64_t B = call.in[0].dim(0) / Sq;
  const Output<A> dq(call.out[0]), dk(call.out[1]), dv(call.out[2]);
  dk.fill(A(0));
  dv.fill(A(0));
  std::vector<A> s_S(static_cast<size_t>(S)), dp_S(static_cast<size_t>(S)), f_S(static_cast<size_t>(S), A(1));
  const DroppedKeys dropped(call);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t j = 0; j < h; ++j) {
      const int64_t kv = j / (h / hk);
      const std::vector<A> k_dS = transpose_head(k.at((b * S * hk + kv) * d), hk * d, S, d);
      const std::vector<A> v_vS = transpose_head(value.at((b * S * hk + kv) * v), hk * v, S, v);
      for (int64_t i = 0; i < Sq; ++i) {
        const int64_t row = (b * Sq + i) * h + j, seen = mask.seen(i), first = std::min(mask.first(b, i), seen);
        const A *q_d = q.at(row * d), *do_v = d_o.at(row * v);
        dots(q_d, k_dS, d, S, first, seen, s_S.data());
        dots(do_v, v_vS, v, S, first, seen, dp_S.data());
        if (dropped) drop(dropped, mask, b * Sq + i, j, first, seen, f_S.data());
        A delta = 0;
        for (int64_t c = 0; c < v; ++c) delta += do_v[c] * o[row * v + c];
        A* dq_d = dq.at(row * d);
        for (int64_t c = 0; c < d; ++c) dq_d[c] = dq_before ? dq_before[row * d + c] : A(0);
        for (int64_t n = first; n < seen; ++n) {
          const auto at = static_cast<size_t>(n);
          const A s = sizes.score(s_S[at]), p = std::exp(s - lse[row]);
          const A ds = p * (f_S[at] * dp_S[at] - delta) * sizes.slope(s) * static_cast<A>(scale);
          const int64_t key = (b * S + n) * hk + kv;
          const A* k_d = k.at(key * d);
          A *dk_d = dk.at(key * d), *dv_v = dv.at(key * v);
          for (int64_t c = 0; c < d; ++c) dq_d[c] += ds * k_d[c];
          for (int64_t c = 0; c < d; ++c) dk_d[c] += ds * q_d[c];
          const A kept = p * f_S[at];
          for (int64_t c = 0; c < v; ++c) dv_v[c] += kept * do_v[c];
        }
      }
    }
  }
}

template <class A>
void attention_finish(const KernelCall& call) {
  const Input<A> o(call.in[0]);
  const Output<A> rounded(call.out[0]);
  std::copy_n(o.at(0), call.in[0].elements(), rounded.at(0));
}

template <class A>
void attention_sinks_wgrad(const KernelCall& call) {
  const int64_t h = call.op->attributes.integer("heads"), T = call.in[0].dim(0), v = call.in[0].dim(1) / h;
  const Input<A> d_o(call.in[0]), o(call.in[1]), lse(call.in[2]), sinks(call.in[3]);
  A* const acc = accumulator<A>(call.updates[0]);
  if (call.overwrite) std::fill_n(acc, call.updates[0].elements(), A(0));
  for (int64_t j = 0; j < h; ++j) {
    const int64_t at = first_sink(*call.op, call.place) + j;
    A sum = 0;
    for (int64_t t = 0; t < T; ++t) {
      A delta = 0;
      for (int64_t c = 0; c < v; ++c) delta += d_o[(t * h + j) * v + c] * o[(t * h + j) * v + c];
      sum += std::exp(sinks[at] - lse[t * h + j]) * delta;
    }
    acc[at] -= sum;
  }
}

}  // namespace

std::vector<KernelEntry> attention_kernels() {
  return {entry("attention", by_type<in0, attention<float>, attention<double>>),
          entry("attention_dgrad", by_type<in0, attention_dgrad<float>, attention_dgrad<double>>),
          entry("attention_part", by_type<in0, attention<float>, attention<double>>),
          entry("attention_part_dgrad", by_type<in0, attention_dgrad<float>, attention_dgrad<double>>),
          entry("attention_sinks_wgrad", by_type<in0, attention_sinks_wgrad<float>, attention_sinks_wgrad<double>>),
          entry("attention_finish", by_type<in0, attention_finish<float>, attention_finish<double>>)};
}

}  // namespace heddle::kernels::reference

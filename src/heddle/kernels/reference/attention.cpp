// attention and its gradient, one sequence and one head at a time.
//
// S sequence length, d head dim, v value dim, h query heads, g = h ÷ hk query heads a kv head.
//   forward:   s_j = scale·q·k_j, lse = ln Σ_j exp(s_j), o = Σ_j exp(s_j − max)·v_j ÷ Σ_j exp(s_j − max)
//   backward:  p_j = exp(s_j − lse), D = do·o, ds_j = p_j·(do·v_j − D)·scale,
//              dq = Σ_j ds_j k_j, dk_j = Σ ds_j q, dv_j = Σ p_j do
// (FlashAttention-2, arXiv 2307.08691). Sums over j are in increasing j; those of dk_j and dv_j go over the g
// heads, then over the queries, in increasing order. Causal: query i sees j ≤ i.
#include <cmath>

#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

struct Sizes {
  explicit Sizes(const KernelCall& call)
      : h(call.op->attributes.integer("heads")),
        hk(call.op->attributes.integer("kv_heads")),
        d(call.op->attributes.integer("head_dim")),
        v(call.op->attributes.integer("value_dim")),
        S(call.op->attributes.integer("sequence")),
        causal(call.op->attributes.integer("causal") != 0),
        scale(call.op->attributes.number("scale")) {}
  int64_t h, hk, d, v, S;
  bool causal;
  double scale;
  int64_t seen(int64_t i) const { return causal ? i + 1 : S; }
};

/// One head of a sequence, transposed: columns_dS[c·S + j] = rows[j·pitch + c].
template <class A>
std::vector<A> transpose_head(const A* rows, int64_t pitch, int64_t S, int64_t width) {
  std::vector<A> columns_dS(static_cast<size_t>(width * S));
  for (int64_t j = 0; j < S; ++j) {
    for (int64_t c = 0; c < width; ++c) columns_dS[static_cast<size_t>(c * S + j)] = rows[j * pitch + c];
  }
  return columns_dS;
}

/// dots_j = Σ_c x_c·columns[c, j] for j < seen, each sum in increasing c.
template <class A>
void dots(const A* x, const std::vector<A>& columns_dS, int64_t width, int64_t S, int64_t seen, A* dots_S) {
  std::fill_n(dots_S, seen, A(0));
  for (int64_t c = 0; c < width; ++c) {
    const A* column = columns_dS.data() + c * S;
    for (int64_t j = 0; j < seen; ++j) dots_S[j] += x[c] * column[j];
  }
}

template <class A>
void attention(const KernelCall& call) {
  const Sizes sizes(call);
  const auto [h, hk, d, v, S, causal, scale] = sizes;
  const Input<A> q(call.in[0]), k(call.in[1]), value(call.in[2]);
  const int64_t T = call.in[0].dim(0);
  const Output<A> o(call.out[0]), lse(call.out[1]);
  std::vector<A> s_S(static_cast<size_t>(S));
  for (int64_t first = 0; first < T; first += S) {
    for (int64_t j = 0; j < h; ++j) {
      const int64_t kv = j / (h / hk);
      const std::vector<A> k_dS = transpose_head(k.at((first * hk + kv) * d), hk * d, S, d);
      for (int64_t i = 0; i < S; ++i) {
        const int64_t row = (first + i) * h + j, seen = sizes.seen(i);
        dots(q.at(row * d), k_dS, d, S, seen, s_S.data());
        for (int64_t n = 0; n < seen; ++n) s_S[static_cast<size_t>(n)] *= static_cast<A>(scale);
        const A most = *std::max_element(s_S.begin(), s_S.begin() + seen);
        A sum = 0;
        A* o_v = o.at(row * v);
        std::fill_n(o_v, v, A(0));
        for (int64_t n = 0; n < seen; ++n) {
          const A p = std::exp(s_S[static_cast<size_t>(n)] - most);
          sum += p;
          const A* value_v = value.at(((first + n) * hk + kv) * v);
          for (int64_t c = 0; c < v; ++c) o_v[c] += p * value_v[c];
        }
        for (int64_t c = 0; c < v; ++c) o_v[c] /= sum;
        lse[row] = most + std::log(sum);
      }
    }
  }
}

template <class A>
void attention_dgrad(const KernelCall& call) {
  const Sizes sizes(call);
  const auto [h, hk, d, v, S, causal, scale] = sizes;
  const Input<A> d_o(call.in[0]), q(call.in[1]), k(call.in[2]), value(call.in[3]), o(call.in[4]), lse(call.in[5]);
  const int64_t T = call.in[0].dim(0);
  const Output<A> dq(call.out[0]), dk(call.out[1]), dv(call.out[2]);
  dk.fill(A(0));
  dv.fill(A(0));
  std::vector<A> s_S(static_cast<size_t>(S)), dp_S(static_cast<size_t>(S));
  for (int64_t first = 0; first < T; first += S) {
    for (int64_t j = 0; j < h; ++j) {
      const int64_t kv = j / (h / hk);
      const std::vector<A> k_dS = transpose_head(k.at((first * hk + kv) * d), hk * d, S, d);
      const std::vector<A> v_vS = transpose_head(value.at((first * hk + kv) * v), hk * v, S, v);
      for (int64_t i = 0; i < S; ++i) {
        const int64_t row = (first + i) * h + j, seen = sizes.seen(i);
        const A *q_d = q.at(row * d), *do_v = d_o.at(row * v);
        dots(q_d, k_dS, d, S, seen, s_S.data());
        dots(do_v, v_vS, v, S, seen, dp_S.data());
        A delta = 0;
        for (int64_t c = 0; c < v; ++c) delta += do_v[c] * o[row * v + c];
        A* dq_d = dq.at(row * d);
        std::fill_n(dq_d, d, A(0));
        for (int64_t n = 0; n < seen; ++n) {
          const auto at = static_cast<size_t>(n);
          const A p = std::exp(s_S[at] * static_cast<A>(scale) - lse[row]);
          const A ds = p * (dp_S[at] - delta) * static_cast<A>(scale);
          const int64_t key = (first + n) * hk + kv;
          const A* k_d = k.at(key * d);
          A *dk_d = dk.at(key * d), *dv_v = dv.at(key * v);
          for (int64_t c = 0; c < d; ++c) dq_d[c] += ds * k_d[c];
          for (int64_t c = 0; c < d; ++c) dk_d[c] += ds * q_d[c];
          for (int64_t c = 0; c < v; ++c) dv_v[c] += p * do_v[c];
        }
      }
    }
  }
}

}  // namespace

std::vector<KernelEntry> attention_kernels() {
  return {entry("attention", by_type<in0, attention<float>, attention<double>>),
          entry("attention_dgrad", by_type<in0, attention_dgrad<float>, attention_dgrad<double>>)};
}

}  // namespace heddle::kernels::reference

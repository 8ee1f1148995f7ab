// cache_rows, rope_at, cached_attention, mla_absorb, mla_expand, last_rows: going on from a cache.
//
// R rows, C rows of the cache: sequences of S positions. A row has h query heads of d elements, g = h ÷ hk query
// heads a kv head, v value elements a head. There are c latent elements, and n positionless and r rotary ones of a
// head. Row t stands at places[t] = sequence·S + position and sees the rows of its sequence up to its own; one that
// stands nowhere sees nothing, and zeros come out. In a window it sees the last of them only, in chunks of the
// sequence those of its own. A sink is one more score, without a value.
#include <cmath>
#include <cstring>

#include "heddle/kernels/cache_places.h"
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

/// Rows are bytes here: nothing is rounded.
void cache_rows(const KernelCall& call) {
  const TensorView &x = call.in[0], &cache = call.updates[0];
  const auto* places = call.in[1].as<const int32_t>();
  const int64_t size = size_of(x.dtype), width = x.dim(1) * size, pitch = cache.dim(1) * size;
  std::byte* to = cache.as<std::byte>() + call.op->attributes.integer("first") * size;
  const CachePlaces of(call);
  for (int64_t t = 0; t < x.dim(0); ++t) {
    const int64_t row = of.row(places, t);
    if (row < 0) continue;
    HEDDLE_CHECK(row < cache.dim(0), "row {} of a cache of {}", row, cache.dim(0));
    std::memcpy(to + row * pitch, x.as<const std::byte>() + t * width, static_cast<size_t>(width));
  }
}

void last_rows(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const auto* places = call.in[1].as<const int32_t>();
  const int64_t runs = call.out[0].dim(0), length = runs == 0 ? 0 : x.dim(0) / runs;
  const auto width = static_cast<size_t>(x.dim(1) * size_of(x.dtype));
  for (int64_t b = 0; b < runs; ++b) {
    int64_t last = (b + 1) * length - 1;
    while (last >= b * length && places[last] < 0) --last;
    std::byte* to = call.out[0].as<std::byte>() + static_cast<size_t>(b) * width;
    if (last < b * length) {
      std::memset(to, 0, width);
    } else {
      std::memcpy(to, x.as<const std::byte>() + static_cast<size_t>(last) * width, width);
    }
  }
}

template <class A>
void cached_attention(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t h = a.integer("heads"), hk = a.integer("kv_heads"), d = a.integer("head_dim");
  const int64_t v = a.integer("value_dim"), S = a.integer("sequence");
  const A scale = static_cast<A>(a.number("scale")), cap = static_cast<A>(a.number_or("cap", 0));
  const auto* places = call.in[1].as<const int32_t>();
  const int64_t window = a.integer_or("window", 0), chunk = a.integer_or("chunk", 0);
  const Input<A> q(call.in[0]), keys(call.in[2]), values(operand(call.in, 3)), sinks(operand(call.in, 4));
  const Output<A> o(call.out[0]);
  std::vector<A> s_S(static_cast<size_t>(S));
  for (int64_t t = 0; t < call.in[0].dim(0); ++t) {
    const int64_t first = places[t] < 0 ? 0 : places[t] / S * S, seen = places[t] < 0 ? 0 : places[t] % S + 1;
    const int64_t begin = first_seen(seen, window, chunk);
    for (int64_t j = 0; j < h; ++j) {
      const int64_t kv = j / (h / hk);
      const A* q_d = q.at((t * h + j) * d);
      A* o_v = o.at((t * h + j) * v);
      std::fill_n(o_v, v, A(0));
      const auto key = [&](int64_t n) { return keys.at(((first + n) * hk + kv) * d); };
      for (int64_t n = begin; n < seen; ++n) {
        A dot = 0;
        for (int64_t i = 0; i < d; ++i) dot += q_d[i] * key(n)[i];
        s_S[n] = cap > 0 ? cap * std::tanh(dot * scale / cap) : dot * scale;
      }
      if (seen == 0) continue;
      A most = *std::max_element(s_S.begin() + begin, s_S.begin() + seen);
      if (sinks) most = std::max(most, sinks[j]);
      A sum = sinks ? std::exp(sinks[j] - most) : A(0);
      for (int64_t n = begin; n < seen; ++n) {
        const A p = std::exp(s_S[n] - most);
        const A* value_v = values ? values.at(((first + n) * hk + kv) * v) : key(n);
        sum += p;
        for (int64_t i = 0; i < v; ++i) o_v[i] += p * value_v[i];
      }
      for (int64_t i = 0; i < v; ++i) o_v[i] /= sum;
    }
  }
}

template <class A>
void rope_at(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t h = a.integer("heads"), d = a.integer("head_dim"), r = a.integer("rope_dim"),
                S = a.integer("sequence"), first = a.integer_or("first", d - r);
  const bool interleaved = a.integer("interleaved") != 0;
  const int64_t rate = a.integer_or("rate", 1);
  const A sign = a.integer_or("inverse", 0) != 0 ? A(-1) : A(1);
  const auto* places = call.in[2].as<const int32_t>();
  const Input<A> x(call.in[0]), table_Sr(call.in[1]);
  const Output<A> y(call.out[0]);
  for (int64_t t = 0; t < call.in[0].dim(0); ++t) {
    const A* row = table_Sr.at(places[t] < 0 ? 0 : places[t] % S / rate * rate * r);
    for (int64_t j = 0; j < h; ++j) {
      const A* from = x.at((t * h + j) * d);
      A* to = y.at((t * h + j) * d);
      std::copy_n(from, d, to);
      from += first;
      to += first;
      for (int64_t i = 0; i < r / 2; ++i) {
        const int64_t p = interleaved ? 2 * i : i, q = interleaved ? 2 * i + 1 : i + r / 2;
        const A sine = sign * row[r / 2 + i];
        to[p] = from[p] * row[i] - from[q] * sine;
        to[q] = from[p] * sine + from[q] * row[i];
      }
    }
  }
}

struct CachedMla {
  explicit CachedMla(const KernelCall& call)
      : h(call.op->attributes.integer("heads")),
        n(call.op->attributes.integer("nope")),
        r(call.op->attributes.integer("rope")),
        v(call.op->attributes.integer("value_dim")),
        c(call.in[1].dim(1)) {}
  int64_t h, n, r, v, c;
};

/// The adapter beside w: w + factor · up down, of `rank` columns of up; rank 0 where there is none.
template <class A>
struct Beside {
  explicit Beside(const KernelCall& call)
      : down(operand(call.in, 2)),
        up(operand(call.in, 3)),
        rank(down ? call.in[2].dim(0) : 0),
        factor(down ? static_cast<A>(call.op->attributes.number("factor")) : A(0)),
        low(static_cast<size_t>(rank)) {}
  const Input<A> down, up;
  const int64_t rank;
  const A factor;
  std::vector<A> low;  // of a row and head
};

/// Per head, of whose rows of w the first n are K: y = (Kᵀ q_n, q_r). Sums are in increasing row, the adapter's
/// behind w's.
template <class A>
void mla_absorb(const KernelCall& call) {
  const auto [h, n, r, v, c] = CachedMla(call);
  const Input<A> q(call.in[0]), w(call.in[1]);
  Beside<A> beside(call);
  const Output<A> y(call.out[0]);
  for (int64_t t = 0; t < call.in[0].dim(0); ++t) {
    for (int64_t j = 0; j < h; ++j) {
      const A* q_nr = q.at((t * h + j) * (n + r));
      A* y_cr = y.at((t * h + j) * (c + r));
      std::fill_n(y_cr, c, A(0));
      for (int64_t i = 0; i < n; ++i) {
        const A* row = w.at((j * (n + v) + i) * c);
        for (int64_t k = 0; k < c; ++k) y_cr[k] += q_nr[i] * row[k];
      }
      for (int64_t s = 0; s < beside.rank; ++s) {
        A low = 0;
        for (int64_t i = 0; i < n; ++i) low += q_nr[i] * beside.up[(j * (n + v) + i) * beside.rank + s];
        for (int64_t k = 0; k < c; ++k) y_cr[k] += beside.factor * low * beside.down[s * c + k];
      }
      std::copy_n(q_nr + n, r, y_cr + c);
    }
  }
}

/// Per head, of whose rows of w the last v are V: o = V x.
template <class A>
void mla_expand(const KernelCall& call) {
  const auto [h, n, r, v, c] = CachedMla(call);
  const Input<A> x(call.in[0]), w(call.in[1]);
  Beside<A> beside(call);
  const Output<A> o(call.out[0]);
  for (int64_t t = 0; t < call.in[0].dim(0); ++t) {
    for (int64_t j = 0; j < h; ++j) {
      for (int64_t s = 0; s < beside.rank; ++s) {
        A& low = beside.low[s];
        low = 0;
        for (int64_t k = 0; k < c; ++k) low += beside.down[s * c + k] * x[(t * h + j) * c + k];
        low *= beside.factor;
      }
      for (int64_t i = 0; i < v; ++i) {
        const A* row = w.at((j * (n + v) + n + i) * c);
        A sum = 0;
        for (int64_t k = 0; k < c; ++k) sum += row[k] * x[(t * h + j) * c + k];
        const A* up = beside.up.at((j * (n + v) + n + i) * beside.rank);
        for (int64_t s = 0; s < beside.rank; ++s) sum += up[s] * beside.low[s];
        o[(t * h + j) * v + i] = sum;
      }
    }
  }
}

}  // namespace

std::vector<KernelEntry> cache_kernels() {
  return {entry("cache_rows", cache_rows),
          entry("rope_at", by_type<in0, rope_at<float>, rope_at<double>>),
          entry("cached_attention", by_type<in0, cached_attention<float>, cached_attention<double>>),
          entry("mla_absorb", by_type<in0, mla_absorb<float>, mla_absorb<double>>),
          entry("mla_expand", by_type<in1, mla_expand<float>, mla_expand<double>>),
          entry("last_rows", last_rows)};
}

}  // namespace heddle::kernels::reference

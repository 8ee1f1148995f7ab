// cached_attention and the products around it (mla_absorb, mla_expand), of few rows. Reading the cache and the
// weight once is all the cost. So work is cut by row and kv head, and each key is read for all query heads that
// share it.
//
// R rows, S positions a sequence, h query heads of d elements, hk kv heads, g = h ÷ hk, v value elements; c latent,
// n positionless and r rotary elements. A sink is one more score of a head, without a value. The bits of a row
// depend on nothing but the row and what it sees.
#include <cmath>

#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/cached_attention.cpp"
#include "heddle/kernels/cache_places.h"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"
#include "heddle/kernels/host/query_keys-inl.h"
#include "heddle/kernels/host/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

}  // namespace

/// Pairs of a row and a kv head, from `begin` to `end`.
void CachedAttentionPairs(const KernelCall& call, int64_t begin, int64_t end) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t h = a.integer("heads"), hk = a.integer("kv_heads"), g = h / hk, d = a.integer("head_dim");
  const int64_t v = a.integer("value_dim"), S = a.integer("sequence");
  const auto scale = static_cast<float>(a.number("scale")), cap = static_cast<float>(a.number_or("cap", 0));
  const auto* places = call.in[1].as<const int32_t>();
  const bool apart = call.in.size() > 3 && call.in[3];
  const auto* sinks = call.in.size() > 4 ? call.in[4].as<const float>() : nullptr;
  const int64_t window = a.integer_or("window", 0), chunk = a.integer_or("chunk", 0);
  auto* scratch = reinterpret_cast<float*>(call.scratch);
  by_types(call.in[0].dtype, call.in[2].dtype, [&](auto q_type, auto k_type) HEDDLE_BODY {
    using Q = decltype(q_type);
    using K = decltype(k_type);
    const K* keys = call.in[2].as<const K>();
    const K* values = apart ? call.in[3].as<const K>() : keys;
    const int64_t width = apart ? v : d;
    for (int64_t pair = begin; pair < end; ++pair) {
      const int64_t t = pair / hk, kv = pair % hk;
      const int64_t first = places[t] < 0 ? 0 : places[t] / S * S, seen = places[t] < 0 ? 0 : places[t] % S + 1;
      const Q* q = call.in[0].as<const Q>() + (t * h + kv * g) * d;
      Q* o = call.out[0].as<Q>() + (t * h + kv * g) * v;
      float* s_gS = scratch + pair * g * (S + v);
      float* o_gv = s_gS + g * S;
      const int64_t begin = first_seen(seen, window, chunk);
      for (int64_t n = begin; n < seen; ++n) {
        const K* key = keys + ((first + n) * hk + kv) * d;
        for (int64_t j = 0; j < g; ++j) s_gS[j * S + n] = scale * dot(q + j * d, key, d);
      }
      std::fill_n(o_gv, g * v, 0.0f);
      for (int64_t j = 0; j < g && seen > 0; ++j) {
        float* s = s_gS + j * S + begin;
        if (cap > 0) cap_row(cap, seen - begin, s);
        float most = *std::max_element(s, s + seen - begin);
        if (sinks != nullptr) most = std::max(most, sinks[kv * g + j]);
        float sum = exponentials(most, seen - begin, s);
        if (sinks != nullptr) sum += std::exp(sinks[kv * g + j] - most);
        for (int64_t n = 0; n < seen - begin; ++n) s[n] /= sum;
      }
      for (int64_t n = begin; n < seen; ++n) {
        const K* value = values + ((first + n) * hk + kv) * width;
        for (int64_t j = 0; j < g; ++j) add_scaled(s_gS[j * S + n], value, v, o_gv + j * v);
      }
      sweep(g * v, [&](int64_t i, auto lanes, auto)
                       HEDDLE_BODY { store(load(static_cast<const float*>(o_gv) + i, lanes), o + i, lanes); });
    }
  });
}

/// The adapter beside w, of w's type W: w + factor · up down, of `rank` columns of up; rank 0 where there is none.
template <class W>
struct Beside {
  explicit Beside(const KernelCall& call) {
    if (call.in.size() < 4 || !call.in[2]) return;
    down = call.in[2].as<const W>();
    up = call.in[3].as<const W>();
    rank = call.in[2].dim(0);
    factor = static_cast<float>(call.op->attributes.number("factor"));
    low.resize(static_cast<size_t>(rank));
  }
  const W *down = nullptr, *up = nullptr;
  int64_t rank = 0;
  float factor = 0;
  std::vector<float> low;  // of a row and head
};

/// Heads from `begin` to `end`, each for all rows: its part of the weight is read once and stays.
void MlaAbsorbHeads(const KernelCall& call, int64_t begin, int64_t end) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t h = a.integer("heads"), n = a.integer("nope"), r = a.integer("rope"), v = a.integer("value_dim");
  const int64_t R = call.in[0].dim(0), c = call.in[1].dim(1);
  by_types(call.in[0].dtype, call.in[1].dtype, [&](auto q_type, auto w_type) HEDDLE_BODY {
    using Q = decltype(q_type);
    using W = decltype(w_type);
    Beside<W> beside(call);
    for (int64_t j = begin; j < end; ++j) {
      const W* w = call.in[1].as<const W>() + j * (n + v) * c;
      const W* up = beside.up + j * (n + v) * beside.rank;
      for (int64_t t = 0; t < R; ++t) {
        const Q* q = call.in[0].as<const Q>() + (t * h + j) * (n + r);
        float* y = call.out[0].as<float>() + (t * h + j) * (c + r);
        std::fill_n(y, c, 0.0f);
        for (int64_t i = 0; i < n; ++i) add_scaled(static_cast<float>(q[i]), w + i * c, c, y);
        std::fill(beside.low.begin(), beside.low.end(), 0.0f);
        for (int64_t i = 0; i < n && beside.rank > 0; ++i)
          add_scaled(beside.factor * static_cast<float>(q[i]), up + i * beside.rank, beside.rank,
                     beside.low.data());
        for (int64_t s = 0; s < beside.rank; ++s) add_scaled(beside.low[s], beside.down + s * c, c, y);
        for (int64_t i = 0; i < r; ++i) y[c + i] = static_cast<float>(q[n + i]);
      }
    }
  });
}

void MlaExpandHeads(const KernelCall& call, int64_t begin, int64_t end) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t h = a.integer("heads"), n = a.integer("nope"), v = a.integer("value_dim");
  const int64_t R = call.in[0].dim(0), c = call.in[1].dim(1);
  by_types(Dtype::f32, call.in[1].dtype, [&](auto, auto w_type) HEDDLE_BODY {
    using W = decltype(w_type);
    Beside<W> beside(call);
    for (int64_t j = begin; j < end; ++j) {
      const W* w = call.in[1].as<const W>() + (j * (n + v) + n) * c;
      const W* up = beside.up + (j * (n + v) + n) * beside.rank;
      for (int64_t t = 0; t < R; ++t) {
        const float* x = call.in[0].as<const float>() + (t * h + j) * c;
        W* o = call.out[0].as<W>() + (t * h + j) * v;
        for (int64_t s = 0; s < beside.rank; ++s) beside.low[s] = beside.factor * dot(x, beside.down + s * c, c);
        for (int64_t i = 0; i < v; ++i) {
          const float beside_it =
              beside.rank > 0 ? dot(beside.low.data(), up + i * beside.rank, beside.rank) : 0.0f;
          o[i] = W(dot(x, w + i * c, c) + beside_it);
        }
      }
    }
  });
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(CachedAttentionPairs);
HWY_EXPORT(MlaAbsorbHeads);
HWY_EXPORT(MlaExpandHeads);

void cached_attention(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t hk = a.integer("kv_heads"), S = a.integer("sequence");
  const auto* places = call.in[1].as<const int32_t>();
  int64_t seen = 0;
  for (int64_t t = 0; t < call.in[0].dim(0); ++t) seen = std::max(seen, places[t] < 0 ? 0 : places[t] % S + 1);
  over_rows(call, call.in[0].dim(0) * hk, seen * call.in[2].columns() / hk * size_of(call.in[2].dtype),
            HWY_DYNAMIC_DISPATCH(CachedAttentionPairs));
}

int64_t attention_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const ir::Attributes& a = op.attributes;
  const int64_t R = listing.elements(op.in[0], rows) / listing.value(op.in[0]).shape[1].count;
  return R * a.integer("heads") * (a.integer("sequence") + a.integer("value_dim")) *
         static_cast<int64_t>(sizeof(float));
}

int64_t bytes_per_head(const KernelCall& call) {
  return call.in[1].elements() / call.op->attributes.integer("heads") * size_of(call.in[1].dtype);
}
void mla_absorb(const KernelCall& call) {
  over_rows(call, call.op->attributes.integer("heads"), bytes_per_head(call), HWY_DYNAMIC_DISPATCH(MlaAbsorbHeads));
}
void mla_expand(const KernelCall& call) {
  over_rows(call, call.op->attributes.integer("heads"), bytes_per_head(call), HWY_DYNAMIC_DISPATCH(MlaExpandHeads));
}

/// Any mixture of bf16 and f32.
Support narrow(const ir::Listing& listing, const ir::Op& op) {
  for (const ir::ValueId id : op.in) {
    if (id != ir::none && listing.value(id).dtype == Dtype::f64) return Support::no("an operand is f64");
  }
  return Support::yes();
}

}  // namespace

std::vector<KernelEntry> cache_kernels() {
  return {{"cached_attention", "host", "highway", narrow, attention_scratch, cached_attention},
          {"mla_absorb", "host", "highway", narrow, nullptr, mla_absorb},
          {"mla_expand", "host", "highway", narrow, nullptr, mla_expand}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE

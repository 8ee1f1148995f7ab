// norm_streams, read_gated_streams, gate_streams and their gradients; ops/gated_streams.cpp has
// the formulas. T rows of n streams of H columns. A gain's gradient is summed by blocks of kRowsPerPartial rows, in
// block order.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/gated_streams.cpp"
#include <cmath>

#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "heddle/ops/hyper_connection.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/column_sums-inl.h"
#include "heddle/kernels/host/lanes-inl.h"

// Sizes are compiled once for all instruction sets.
#ifndef HEDDLE_KERNELS_HOST_GATED_STREAMS_SIZES
#define HEDDLE_KERNELS_HOST_GATED_STREAMS_SIZES
namespace heddle::kernels::host {
struct GatedSizes {
  GatedSizes(const device::KernelCall& call, const device::TensorView& all)
      : n(call.op->attributes.integer("streams")), W(all.columns()), H(W / n) {}
  int64_t n, W, H;  // streams, columns of all, of one
};
}  // namespace heddle::kernels::host
#endif

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

HWY_INLINE V gain_offset(const KernelCall& call) {
  return set(static_cast<float>(call.op->attributes.number_or("offset", 0)));
}

template <class X>
HWY_INLINE float stream_dot(const X* a, const X* b, int64_t H) {
  Sum sum;
  sweep(H, [&](int64_t h, auto lanes, auto nth)
               HEDDLE_BODY { sum.add_product(load(a + h, lanes), load(b + h, lanes), nth); });
  return sum.total();
}

template <class X>
void norm_streams_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const GatedSizes s(call, call.in[0]);
  const auto epsilon = static_cast<float>(call.op->attributes.number("epsilon"));
  const V offset = gain_offset(call);
  for (int64_t r = begin * s.n; r < end * s.n; ++r) {
    const X* x = call.in[0].as<const X>() + r * s.H;
    const float* g = call.in[1].as<const float>() + r % s.n * s.H;
    X* y = call.out[0].as<X>() + r * s.H;
    const float rstd = 1.0f / std::sqrt(stream_dot(x, x, s.H) / static_cast<float>(s.H) + epsilon);
    call.out[1].as<float>()[r] = rstd;
    sweep(s.H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
      store(hn::Mul(hn::Mul(load(x + h, lanes), set(rstd)), hn::Add(offset, load(g + h, lanes))), y + h, lanes);
    });
  }
}

template <class X>
void norm_streams_back(const KernelCall& call, int64_t begin, int64_t end) {
  const GatedSizes s(call, call.in[1]);
  const V offset = gain_offset(call);
  const bool joins = call.in.size() > 4 && call.in[4];
  for (int64_t t = begin; t < end; ++t) {
    float* sums = partial_sum(call.scratch, t / kRowsPerPartial, s.W);
    if (t % kRowsPerPartial == 0) std::fill_n(sums, s.W, 0.0f);
    for (int64_t r = t * s.n; r < (t + 1) * s.n; ++r) {
      const X *dy = call.in[0].as<const X>() + r * s.H, *x = call.in[1].as<const X>() + r * s.H;
      const X* dres = joins ? call.in[4].as<const X>() + r * s.H : nullptr;
      const float* g = call.in[2].as<const float>() + r % s.n * s.H;
      float* dg = sums + r % s.n * s.H;
      X* dx = call.out[0].as<X>() + r * s.H;
      Sum sum;
      sweep(s.H, [&](int64_t h, auto lanes, auto nth) HEDDLE_BODY {
        sum.add_product(hn::Mul(hn::Add(offset, load(g + h, lanes)), load(dy + h, lanes)), load(x + h, lanes), nth);
      });
      const float scale = call.in[3].as<const float>()[r];
      const V rstd = set(scale), along = set(scale * scale * (sum.total() / static_cast<float>(s.H)));
      sweep(s.H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
        const V dy_h = load(dy + h, lanes), x_h = load(x + h, lanes);
        V d = hn::Mul(hn::Add(offset, load(g + h, lanes)), dy_h);
        d = hn::Mul(rstd, hn::NegMulAdd(x_h, along, d));
        if (dres != nullptr) d = hn::Add(load(dres + h, lanes), d);
        store(d, dx + h, lanes);
        const V before = load(static_cast<const float*>(dg) + h, lanes);
        store(hn::MulAdd(hn::Mul(dy_h, x_h), rstd, before), dg + h, lanes);
      });
    }
  }
}

template <class X>
void read_stream_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const GatedSizes s(call, call.in[0]);
  const V part = set(1.0f / static_cast<float>(s.n));
  for (int64_t t = begin; t < end; ++t) {
    const X *y = call.in[0].as<const X>() + t * s.W, *u = call.in[1].as<const X>() + t * s.W;
    X* r = call.out[0].as<X>() + t * s.H;
    sweep(s.H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
      V sum = zero();
      for (int64_t i = 0; i < s.n; ++i)
        sum = hn::MulAdd(sigmoid(load(u + i * s.H + h, lanes)), load(y + i * s.H + h, lanes), sum);
      store(hn::Mul(sum, part), r + h, lanes);
    });
    if (call.in.size() < 3 || !call.in[2]) continue;
    const float* q = call.in[2].as<const float>() + t * s.n;
    for (int64_t i = 0; i < s.n; ++i)
      call.out[1].as<float>()[t * s.n + i] = 2.0f / (1.0f + std::exp(-q[i] / static_cast<float>(s.n)));
  }
}

template <class X>
void read_stream_back(const KernelCall& call, int64_t begin, int64_t end) {
  const GatedSizes s(call, call.in[1]);
  const V part = set(1.0f / static_cast<float>(s.n)), one = set(1.0f);
  for (int64_t t = begin; t < end; ++t) {
    const X* dr = call.in[0].as<const X>() + t * s.H;
    for (int64_t i = 0; i < s.n; ++i) {
      const int64_t at = t * s.W + i * s.H;
      const X *y = call.in[1].as<const X>() + at, *u = call.in[2].as<const X>() + at;
      X *dy = call.out[0].as<X>() + at, *du = call.out[1].as<X>() + at;
      sweep(s.H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
        const V d = hn::Mul(load(dr + h, lanes), part), gate = sigmoid(load(u + h, lanes));
        const V slope = hn::Mul(gate, hn::Sub(one, gate));
        store(hn::Mul(hn::Mul(slope, load(y + h, lanes)), d), du + h, lanes);
        store(hn::Mul(gate, d), dy + h, lanes);
      });
    }
    if (call.in.size() < 4 || !call.in[3]) continue;
    const float *w = call.in[3].as<const float>() + t * s.n, *dw = call.in[4].as<const float>() + t * s.n;
    for (int64_t i = 0; i < s.n; ++i)
      call.out[2].as<float>()[t * s.n + i] = dw[i] * w[i] * (1.0f - w[i] / 2.0f) / static_cast<float>(s.n);
  }
}

/// d = k·y ÷ √H of a stream, and its root with its sign.
struct Agreement {
  template <class X>
  Agreement(const X* k, const X* y, int64_t H) : d(stream_dot(k, y, H) / std::sqrt(static_cast<float>(H))) {
    const float root = std::sqrt(std::max(std::abs(d), kLeast));
    e = d == 0 ? 0.0f : std::copysign(root, d);
    gate = 1.0f / (1.0f + std::exp(-e));
  }
  static constexpr float kLeast = 1e-6f;
  bool is_cut() const { return std::abs(d) < kLeast; }
  float d, e, gate;
};

template <class X>
void gate_stream_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const GatedSizes s(call, call.in[0]);
  for (int64_t r = begin * s.n; r < end * s.n; ++r) {
    const X *k = call.in[0].as<const X>() + r * s.H, *y = call.in[1].as<const X>() + r * s.H;
    const X* v = call.in[2].as<const X>() + r / s.n * s.H;
    X* to = call.out[0].as<X>() + r * s.H;
    const V gate = set(Agreement(k, y, s.H).gate);
    sweep(s.H, [&](int64_t h, auto lanes, auto)
                   HEDDLE_BODY { store(hn::Mul(gate, load(v + h, lanes)), to + h, lanes); });
  }
}

template <class X>
void gate_stream_back(const KernelCall& call, int64_t begin, int64_t end) {
  const GatedSizes s(call, call.in[1]);
  for (int64_t t = begin; t < end; ++t) {
    const X* v = call.in[3].as<const X>() + t * s.H;
    X* dv = call.out[2].as<X>() + t * s.H;
    float gates[ops::kMostStreams];
    for (int64_t i = 0; i < s.n; ++i) {
      const int64_t at = t * s.W + i * s.H;
      const X *ds = call.in[0].as<const X>() + at, *k = call.in[1].as<const X>() + at,
              *y = call.in[2].as<const X>() + at;
      X *dk = call.out[0].as<X>() + at, *dy = call.out[1].as<X>() + at;
      const Agreement of(k, y, s.H);
      gates[i] = of.gate;
      const float slope = of.is_cut() ? 0.0f : of.gate * (1.0f - of.gate) / (2.0f * std::abs(of.e));
      const V dd = set(slope * stream_dot(ds, v, s.H) / std::sqrt(static_cast<float>(s.H)));
      sweep(s.H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
        const V k_h = load(k + h, lanes), y_h = load(y + h, lanes);
        store(hn::Mul(dd, y_h), dk + h, lanes);
        store(hn::Mul(dd, k_h), dy + h, lanes);
      });
    }
    const X* ds = call.in[0].as<const X>() + t * s.W;
    sweep(s.H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
      V sum = zero();
      for (int64_t i = 0; i < s.n; ++i) sum = hn::MulAdd(set(gates[i]), load(ds + i * s.H + h, lanes), sum);
      store(sum, dv + h, lanes);
    });
  }
}

}  // namespace

#define HEDDLE_ROWS_OF(Name, rows)                                                                  \
  void Name(const KernelCall& call, int64_t begin, int64_t end) {                                   \
    call.in[0].dtype == Dtype::bf16 ? rows<bf16>(call, begin, end) : rows<float>(call, begin, end); \
  }
HEDDLE_ROWS_OF(GatedNormStreams, norm_streams_rows)
HEDDLE_ROWS_OF(GatedNormStreamsBack, norm_streams_back)
HEDDLE_ROWS_OF(GatedRead, read_stream_rows)
HEDDLE_ROWS_OF(GatedReadBack, read_stream_back)
HEDDLE_ROWS_OF(GateStreams, gate_stream_rows)
HEDDLE_ROWS_OF(GateStreamsBack, gate_stream_back)
#undef HEDDLE_ROWS_OF
void GatedAddPartials(const std::byte* scratch, int64_t partials, int64_t columns, float* sums) {
  add_partials(scratch, partials, columns, sums);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(GatedNormStreams);
HWY_EXPORT(GatedNormStreamsBack);
HWY_EXPORT(GatedRead);
HWY_EXPORT(GatedReadBack);
HWY_EXPORT(GateStreams);
HWY_EXPORT(GateStreamsBack);
HWY_EXPORT(GatedAddPartials);

/// Rows of `all`, of which each moves `times` the bytes of its own.
void over_stream_rows(const KernelCall& call, const device::TensorView& all, int64_t times, RowKernel piece,
                      int64_t multiple = 1) {
  over_rows(call, all.rows(), times * all.columns() * size_of(all.dtype), piece, multiple);
}

void norm_streams(const KernelCall& call) {
  over_stream_rows(call, call.in[0], 2, HWY_DYNAMIC_DISPATCH(GatedNormStreams));
}
void norm_streams_dgrad(const KernelCall& call) {
  const device::TensorView& x = call.in[1];
  over_stream_rows(call, x, 4, HWY_DYNAMIC_DISPATCH(GatedNormStreamsBack), kRowsPerPartial);
  HWY_DYNAMIC_DISPATCH(GatedAddPartials)
  (call.scratch, partial_count(x.rows()), x.columns(), call.out[1].as<float>());
}
int64_t gain_sums_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const int64_t W = listing.value(op.in[2]).shape[0].count;
  return partial_sums_bytes(listing.elements(op.in[1], rows) / W, W);
}
void read_gated_streams(const KernelCall& call) {
  over_stream_rows(call, call.in[0], 2, HWY_DYNAMIC_DISPATCH(GatedRead));
}
void read_gated_streams_dgrad(const KernelCall& call) {
  over_stream_rows(call, call.in[1], 4, HWY_DYNAMIC_DISPATCH(GatedReadBack));
}
void gate_streams(const KernelCall& call) {
  over_stream_rows(call, call.in[0], 3, HWY_DYNAMIC_DISPATCH(GateStreams));
}
void gate_streams_dgrad(const KernelCall& call) {
  over_stream_rows(call, call.in[1], 5, HWY_DYNAMIC_DISPATCH(GateStreamsBack));
}

}  // namespace

std::vector<KernelEntry> gated_stream_kernels() {
  return {{"norm_streams", "host", "highway", takes<"xa">, nullptr, norm_streams},
          {"norm_streams_dgrad", "host", "highway", takes<"xxaax">, gain_sums_bytes, norm_streams_dgrad},
          {"read_gated_streams", "host", "highway", takes<"xxa">, nullptr, read_gated_streams},
          {"read_gated_streams_dgrad", "host", "highway", takes<"xxxaa">, nullptr, read_gated_streams_dgrad},
          {"gate_streams", "host", "highway", takes<"xxx">, nullptr, gate_streams},
          {"gate_streams_dgrad", "host", "highway", takes<"xxxx">, nullptr, gate_streams_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE

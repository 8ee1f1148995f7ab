// causal_conv, log_decay, gated_norm and their gradients: what stands around a recurrence. T rows of C channels.
//
// Convolutions work by strips of channels, whose K weights and sums stay in registers and the first cache. The
// gradient goes once over all rows of a strip, and holds the K rows of dx that later rows still add to. Norms and
// decays sum over rows by partials (row_pieces.h). No result depends on the number of threads.
#include <cmath>

#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/convolution.cpp"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "heddle/kernels/recurrence.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/by_type-inl.h"
#include "heddle/kernels/host/softplus-inl.h"

// Sizes are compiled once for all instruction sets.
#ifndef HEDDLE_KERNELS_HOST_CONVOLUTION_SIZES
#define HEDDLE_KERNELS_HOST_CONVOLUTION_SIZES
namespace heddle::kernels::host {
constexpr int64_t kStrip = 128;    // channels
constexpr int64_t kMostTaps = 8;   // K at most
constexpr int64_t kMostOpen = 32;  // rows of the gradient that later rows still add to

struct Convolution {
  Convolution(const device::KernelCall& call, size_t first)
      : x(call.in[first]),
        C(x.dim(1)),
        K(call.in[first + 1].dim(1)),
        D(call.op->attributes.integer_or("dilation", 1)),
        S(call.op->attributes.integer("sequence")),
        silu(call.op->attributes.integer_or("silu", 0) != 0),
        part(first_of_part(*call.op, call.place, C)),
        weight(call.in[first + 1].as<const float>() + part * K),
        starts(named_operand(call, "starts").as<const int32_t>()) {
    if (const device::TensorView of = named_operand(call, "bias")) bias = of.as<const float>() + part;
    before = named_operand(call, "before");
    behind = named_operand(call, "behind").as<const float>();
  }
  /// Rows before t that the kernel sees, D apart.
  int64_t back(int64_t t) const {
    if (starts == nullptr && before) return K - 1;
    return std::min(K - 1, (t % S - (starts == nullptr ? 0 : starts[t])) / D);
  }
  /// Rows t, t − D, … that the kernel sees, from a channel on: the ones ahead of a piece stand apart.
  template <class X>
  int64_t rows(int64_t t, int64_t channel, const X** to) const {
    const int64_t seen = back(t);
    for (int64_t i = 0; i <= seen; ++i) {
      to[i] = i * D <= t % S ? x.as<const X>() + (t - i * D) * C + channel
                             : before.as<const X>() + place_before(t, i) * C + channel;
    }
    return seen;
  }
  /// The rows before a piece that the kernel reaches.
  int64_t kept() const { return (K - 1) * D; }
  int64_t place_before(int64_t t, int64_t i) const { return (t / S + 1) * kept() + t % S - i * D; }
  /// The part of the gradient of row t that later pieces give, from a channel on; null where there is none.
  const float* from_behind(int64_t t, int64_t channel) const {
    const int64_t last = std::min(kept(), S), to_end = S - t % S;
    if (behind == nullptr || to_end > last) return nullptr;
    return behind + ((t / S + 1) * last - to_end) * C + channel;
  }
  const device::TensorView& x;
  int64_t C, K, D, S;
  bool silu;
  int64_t part;  // the first of this rank's channels
  const float *weight, *bias = nullptr, *behind = nullptr;
  const int32_t* starts;
  device::TensorView before;
};

struct GatedNorm {
  GatedNorm(const device::KernelCall& call, size_t first)
      : C(call.in[first].dim(1)),
        run(call.op->attributes.integer("run")),
        G(call.in[first + 2].dim(0)),
        gate_first(call.op->attributes.integer_or("gate_first", 0) != 0),
        sigmoid(call.op->attributes.integer_or("sigmoid", 0) != 0),
        epsilon(static_cast<float>(call.op->attributes.number("epsilon"))) {}
  int64_t C, run, G;
  bool gate_first, sigmoid;
  float epsilon;
};
}  // namespace heddle::kernels::host
#endif

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

/// x·σ(x) and its slope.
HWY_INLINE V silu(V x) { return hn::Mul(x, sigmoid(x)); }
HWY_INLINE V silu_slope(V x) {
  const V s = sigmoid(x);
  return hn::Mul(s, hn::MulAdd(x, hn::Sub(set(1.0f), s), set(1.0f)));
}

/// A strip's weights by tap, the newest row's first, and its bias.
struct Taps {
  HWY_INLINE Taps(const Convolution& c, int64_t first, int64_t width) {
    for (int64_t i = 0; i < c.K; ++i) {
      for (int64_t j = 0; j < kStrip; ++j)
        weight[i][j] = j < width ? c.weight[(first + j) * c.K + c.K - 1 - i] : 0.0f;
    }
    for (int64_t j = 0; j < kStrip; ++j) bias[j] = j < width && c.bias != nullptr ? c.bias[first + j] : 0.0f;
  }
  HWY_ALIGN float weight[kMostTaps][kStrip];
  HWY_ALIGN float bias[kStrip];
};

template <class X, class Lanes>
HWY_INLINE V convolved(const Taps& taps, const X* const* rows, int64_t back, int64_t j, Lanes lanes) {
  V z = hn::Load(Floats(), taps.bias + j);
  for (int64_t i = 0; i <= back; ++i)
    z = hn::MulAdd(hn::Load(Floats(), taps.weight[i] + j), load(rows[i] + j, lanes), z);
  return z;
}

template <class X>
void convolve(const KernelCall& call, int64_t begin, int64_t end) {
  const Convolution c(call, 0);
  for (int64_t first = 0; first < c.C; first += kStrip) {
    const int64_t width = std::min(kStrip, c.C - first);
    const Taps taps(c, first, width);
    for (int64_t t = begin; t < end; ++t) {
      X* y = call.out[0].as<X>() + t * c.C + first;
      const X* rows[kMostTaps];
      const int64_t back = c.rows(t, first, rows);
      sweep(width, [&](int64_t j, auto lanes, auto) HEDDLE_BODY {
        const V z = convolved(taps, rows, back, j, lanes);
        store(c.silu ? silu(z) : z, y + j, lanes);
      });
    }
  }
}

/// A strip of all rows. Row t of dx is complete once row t + (K − 1)·D has added to it.
template <class X>
void convolve_back(const KernelCall& call, int64_t strip) {
  const Convolution c(call, 1);
  const int64_t first = strip * kStrip, width = std::min(kStrip, c.C - first), T = c.x.dim(0);
  const Taps taps(c, first, width);
  HWY_ALIGN float open[kMostOpen][kStrip];
  const int64_t opened = c.kept() + 1;
  HWY_ALIGN float sums[kMostTaps + 1][kStrip] = {};
  X* dx = call.out[0].as<X>() + first;
  const auto close = [&](int64_t t) HEDDLE_BODY {
    const float *row = open[t % opened], *behind = c.from_behind(t, first);
    sweep(width, [&](int64_t j, auto lanes, auto) HEDDLE_BODY {
      V d = hn::Load(Floats(), row + j);
      if (behind != nullptr) d = hn::Add(d, load(behind + j, lanes));
      store(d, dx + t * c.C + j, lanes);
    });
  };
  for (int64_t t = 0; t < T; ++t) {
    if (t >= opened) close(t - opened);
    std::fill_n(open[t % opened], kStrip, 0.0f);
    const X *dy = call.in[0].as<const X>() + t * c.C + first, *rows[kMostTaps];
    const int64_t back = c.rows(t, first, rows), in_sequence = t % c.S;
    sweep(width, [&](int64_t j, auto lanes, auto) HEDDLE_BODY {
      V dz = load(dy + j, lanes);
      if (c.silu) dz = hn::Mul(dz, silu_slope(convolved(taps, rows, back, j, lanes)));
      const auto add = [&](V a, V b, float* to)
                           HEDDLE_BODY { hn::Store(hn::MulAdd(a, b, hn::Load(Floats(), to)), Floats(), to); };
      for (int64_t i = 0; i <= back; ++i) {
        if (i * c.D <= in_sequence)
          add(hn::Load(Floats(), taps.weight[i] + j), dz, open[(t - i * c.D) % opened] + j);
        add(load(rows[i] + j, lanes), dz, sums[i] + j);
      }
      hn::Store(hn::Add(dz, hn::Load(Floats(), sums[kMostTaps] + j)), Floats(), sums[kMostTaps] + j);
    });
  }
  for (int64_t t = std::max<int64_t>(0, T - opened); t < T; ++t) close(t);
  float* d_weight = call.out[1].as<float>() + (c.part + first) * c.K;
  for (int64_t j = 0; j < width; ++j) {
    for (int64_t i = 0; i < c.K; ++i) d_weight[j * c.K + c.K - 1 - i] = sums[i][j];
    if (c.bias != nullptr) call.out[2].as<float>()[c.part + first + j] = sums[kMostTaps][j];
  }
}

/// A strip of the rows ahead of all pieces.
template <class X>
void convolve_before(const KernelCall& call, int64_t strip) {
  const Convolution c(call, 1);
  const int64_t first = strip * kStrip, width = std::min(kStrip, c.C - first);
  const Taps taps(c, first, width);
  float* to = call.out[0].as<float>() + first;
  for (int64_t i = 0; i < call.out[0].dim(0); ++i) std::fill_n(to + i * c.C, width, 0.0f);
  for (int64_t n = 0; n < c.x.dim(0) / c.S; ++n) {
    for (int64_t t = n * c.S; t < n * c.S + std::min(c.kept(), c.S); ++t) {
      const X *dy = call.in[0].as<const X>() + t * c.C + first, *rows[kMostTaps];
      const int64_t back = c.rows(t, first, rows);
      sweep(width, [&](int64_t j, auto lanes, auto) HEDDLE_BODY {
        V dz = load(dy + j, lanes);
        if (c.silu) dz = hn::Mul(dz, silu_slope(convolved(taps, rows, back, j, lanes)));
        for (int64_t i = t % c.S / c.D + 1; i <= back; ++i) {
          float* d = to + c.place_before(t, i) * c.C + j;
          const V sum = load(static_cast<const float*>(d), lanes);
          store(hn::MulAdd(hn::Load(Floats(), taps.weight[i] + j), dz, sum), d, lanes);
        }
      });
    }
  }
}

/// Rates exp(a_log), one a column.
HWY_INLINE void column_rates(const KernelCall& call, float* rates) {
  const int64_t C = call.in[0].dim(1), run = C / call.in[1].dim(0);
  const float* a_log = call.in[1].as<const float>();
  for (int64_t c = 0; c < C; ++c) rates[c] = c % run == 0 ? std::exp(a_log[c / run]) : rates[c - 1];
}

template <class X>
void decay_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t C = call.in[0].dim(1);
  const auto* rates = reinterpret_cast<const float*>(call.scratch);
  const float* bias = named_operand(call, "dt_bias").as<const float>();
  const V least = set(static_cast<float>(call.op->attributes.number_or("least", 0)));
  const V most = set(static_cast<float>(call.op->attributes.number_or("most", HUGE_VAL)));
  const V bound = set(static_cast<float>(call.op->attributes.number_or("bound", 0)));
  const bool is_bounded = call.op->attributes.has("bound");
  for (int64_t t = begin; t < end; ++t) {
    const X* x = call.in[0].as<const X>() + t * C;
    float* decay = call.out[0].as<float>() + t * C;
    float* step = call.out.size() > 1 ? call.out[1].as<float>() + t * C : nullptr;
    sweep(C, [&](int64_t c, auto lanes, auto) HEDDLE_BODY {
      V in = load(x + c, lanes);
      if (bias != nullptr) in = hn::Add(in, load(bias + c, lanes));
      if (is_bounded) {
        store(hn::Mul(bound, sigmoid(hn::Mul(load(rates + c, lanes), in))), decay + c, lanes);
        return;
      }
      const V dt = hn::Min(hn::Max(softplus(in), least), most);
      store(hn::Neg(hn::Mul(load(rates + c, lanes), dt)), decay + c, lanes);
      if (step != nullptr) store(dt, step + c, lanes);
    });
  }
}

/// Partials of 64 rows: of da_log column by column, then of ddt_bias.
template <class X>
void decay_back(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t C = call.in[0].dim(1), T = call.in[0].dim(0);
  const auto* rates = reinterpret_cast<const float*>(call.scratch);
  std::byte* const partials = call.scratch + partial_stride(C) * 4;
  const float* bias = named_operand(call, "dt_bias").as<const float>();
  const float* d_decay = named_operand(call, "ddecay").as<const float>();
  const float* d_step = named_operand(call, "dstep").as<const float>();
  const V least = set(static_cast<float>(call.op->attributes.number_or("least", 0)));
  const V most = set(static_cast<float>(call.op->attributes.number_or("most", HUGE_VAL)));
  const V bound = set(static_cast<float>(call.op->attributes.number_or("bound", 0)));
  const bool is_bounded = call.op->attributes.has("bound");
  for (int64_t p = begin; p < end; ++p) {
    float* sums = partial_sum(partials, p, 2 * C);
    std::fill_n(sums, 2 * C, 0.0f);
    for (int64_t t = p * kRowsPerPartial; t < std::min(T, (p + 1) * kRowsPerPartial); ++t) {
      const X* x = call.in[0].as<const X>() + t * C;
      X* dx = call.out[0].as<X>() + t * C;
      sweep(C, [&](int64_t c, auto lanes, auto) HEDDLE_BODY {
        V in = load(x + c, lanes), d = zero();
        if (bias != nullptr) in = hn::Add(in, load(bias + c, lanes));
        const auto add = [&](V of, float* to) HEDDLE_BODY {
          store(hn::Add(of, load(static_cast<const float*>(to), lanes)), to, lanes);
        };
        if (is_bounded) {
          const V rate = load(rates + c, lanes), z = hn::Mul(rate, in), s = sigmoid(z);
          const V slope = hn::Mul(s, hn::Sub(set(1.0f), s));
          const V dz = hn::Mul(hn::Mul(load(d_decay + t * C + c, lanes), bound), slope);
          d = hn::Mul(rate, dz);
          add(hn::Mul(dz, z), sums + c);
          store(d, dx + c, lanes);
          add(d, sums + C + c);
          return;
        }
        const V free = softplus(in), dt = hn::Min(hn::Max(free, least), most);
        if (d_step != nullptr) d = load(d_step + t * C + c, lanes);
        if (d_decay != nullptr) {
          const V of = hn::Mul(load(rates + c, lanes), load(d_decay + t * C + c, lanes));
          d = hn::Sub(d, of);
          add(hn::Neg(hn::Mul(of, dt)), sums + c);
        }
        d = hn::IfThenElseZero(hn::Eq(free, dt), hn::Mul(d, sigmoid(in)));
        store(d, dx + c, lanes);
        add(d, sums + C + c);
      });
    }
  }
}

HWY_INLINE V act(const GatedNorm& s, V z) { return s.sigmoid ? sigmoid(z) : silu(z); }

template <class X>
void norm_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const GatedNorm s(call, 0);
  const int64_t norms = s.C / s.run;
  const auto* g = call.in[2].as<const float>();
  for (int64_t n = begin * norms; n < end * norms; ++n) {
    const X *x = call.in[0].as<const X>() + n * s.run, *z = call.in[1].as<const X>() + n * s.run;
    X* y = call.out[0].as<X>() + n * s.run;
    const auto normed = [&](int64_t i, auto lanes) HEDDLE_BODY {
      const V value = load(x + i, lanes);
      return s.gate_first ? hn::Mul(value, act(s, load(z + i, lanes))) : value;
    };
    Sum sum;
    sweep(s.run, [&](int64_t i, auto lanes, auto nth) HEDDLE_BODY {
      const V value = normed(i, lanes);
      sum.add_product(value, value, nth);
    });
    const float rstd = 1.0f / std::sqrt(sum.total() / static_cast<float>(s.run) + s.epsilon);
    call.out[1].as<float>()[n] = rstd;
    const float* gains = g + n * s.run % s.C % s.G;
    sweep(s.run, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
      V value = hn::Mul(hn::Mul(normed(i, lanes), set(rstd)), load(gains + i, lanes));
      if (!s.gate_first) value = hn::Mul(value, act(s, load(z + i, lanes)));
      store(value, y + i, lanes);
    });
  }
}

/// Partials of 64 rows of dg.
template <class X>
void norm_back(const KernelCall& call, int64_t begin, int64_t end) {
  const GatedNorm s(call, 1);
  const int64_t norms = s.C / s.run, T = call.in[1].dim(0);
  const auto* g = call.in[3].as<const float>();
  for (int64_t p = begin; p < end; ++p) {
    float* sums = partial_sum(call.scratch, p, s.G);
    std::fill_n(sums, s.G, 0.0f);
    for (int64_t n = p * kRowsPerPartial * norms; n < std::min(T, (p + 1) * kRowsPerPartial) * norms; ++n) {
      const int64_t at = n * s.run, gain = at % s.C % s.G;
      const X *dy = call.in[0].as<const X>() + at, *x = call.in[1].as<const X>() + at;
      const X* z = call.in[2].as<const X>() + at;
      X *dx = call.out[0].as<X>() + at, *d_gate = call.out[1].as<X>() + at;
      const V rstd = set(call.in[4].as<const float>()[n]);
      Sum sum;
      sweep(s.run, [&](int64_t i, auto lanes, auto nth) HEDDLE_BODY {
        const V d = hn::Mul(load(dy + i, lanes), load(g + gain + i, lanes));
        sum.add_product(hn::Mul(d, act(s, load(z + i, lanes))), load(x + i, lanes), nth);
      });
      const V along = hn::Mul(hn::Mul(rstd, rstd), set(sum.total() / static_cast<float>(s.run)));
      sweep(s.run, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
        const V d = load(dy + i, lanes), value = load(x + i, lanes), gate = load(z + i, lanes);
        const V bent = act(s, gate), weighted = hn::Mul(d, load(g + gain + i, lanes));
        const V normed = s.gate_first ? hn::Mul(value, bent) : value;
        const V into = s.gate_first ? weighted : hn::Mul(weighted, bent);
        const V d_normed = hn::Mul(rstd, hn::NegMulAdd(normed, along, into));
        V slope = silu_slope(gate);
        if (s.sigmoid) slope = hn::Mul(bent, hn::Sub(set(1.0f), bent));
        store(s.gate_first ? hn::Mul(d_normed, bent) : d_normed, dx + i, lanes);
        const V through = s.gate_first ? hn::Mul(d_normed, value) : hn::Mul(hn::Mul(weighted, value), rstd);
        store(hn::Mul(slope, through), d_gate + i, lanes);
        // d·value·act is d times what is normed and, where it comes last, the gate.
        const V of_gain = hn::Mul(hn::Mul(hn::Mul(d, value), bent), rstd);
        store(hn::Add(of_gain, load(static_cast<const float*>(sums) + gain + i, lanes)), sums + gain + i, lanes);
      });
    }
  }
}
}  // namespace

void ConvolveRows(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<convolve<bf16>, convolve<float>>(call, begin, end);
}
void ConvolveBack(const KernelCall& call, int64_t strip) {
  call.in[0].dtype == Dtype::bf16 ? convolve_back<bf16>(call, strip) : convolve_back<float>(call, strip);
}
void ConvolveBefore(const KernelCall& call, int64_t strip) {
  call.in[0].dtype == Dtype::bf16 ? convolve_before<bf16>(call, strip) : convolve_before<float>(call, strip);
}
void ColumnRates(const KernelCall& call) { column_rates(call, reinterpret_cast<float*>(call.scratch)); }
void DecayRows(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<decay_rows<bf16>, decay_rows<float>>(call, begin, end);
}
void DecayBack(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<decay_back<bf16>, decay_back<float>>(call, begin, end);
}
void GatedNormRows(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<norm_rows<bf16>, norm_rows<float>>(call, begin, end);
}
void GatedNormBack(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<norm_back<bf16>, norm_back<float>>(call, begin, end);
}
}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(ConvolveRows);
HWY_EXPORT(ConvolveBack);
HWY_EXPORT(ConvolveBefore);
HWY_EXPORT(ColumnRates);
HWY_EXPORT(DecayRows);
HWY_EXPORT(DecayBack);
HWY_EXPORT(GatedNormRows);
HWY_EXPORT(GatedNormBack);

void causal_conv(const KernelCall& call) {
  const auto piece = HWY_DYNAMIC_DISPATCH(ConvolveRows);
  over_rows(call, call.in[0].dim(0), 2 * call.in[0].dim(1) * size_of(call.in[0].dtype), piece);
}

void causal_conv_dgrad(const KernelCall& call) {
  for (size_t i = 1; i < call.out.size(); ++i)
    std::fill_n(call.out[i].as<float>(), call.out[i].elements(), 0.0f);  // of other ranks' parts
  const auto strip = HWY_DYNAMIC_DISPATCH(ConvolveBack);
  const int64_t C = call.in[1].dim(1);
  over_rows((C + kStrip - 1) / kStrip, 3 * call.in[1].dim(0) * kStrip * size_of(call.in[1].dtype),
            [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) strip(call, i);
            });
}

void causal_conv_before_dgrad(const KernelCall& call) {
  const auto strip = HWY_DYNAMIC_DISPATCH(ConvolveBefore);
  over_rows((call.in[1].dim(1) + kStrip - 1) / kStrip, 3 * call.out[0].dim(0) * kStrip * 4,
            [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) strip(call, i);
            });
}

template <size_t x>
Support few_taps(const ir::Listing& listing, const ir::Op& op) {
  Dtype type = Dtype::u8;
  if (Support in = operands_are(listing, op.in, x == 0 ? "xaaix" : "xxaaixa", "input", &type); !in) return in;
  const int64_t taps = listing.value(op.in[x + 1]).shape[1].count;
  if (taps > kMostTaps) return Support::no(fmt::format("a kernel of {} rows, at most {}", taps, kMostTaps));
  const int64_t reach = (taps - 1) * op.attributes.integer_or("dilation", 1);
  if (reach >= kMostOpen)
    return Support::no(fmt::format("a kernel over {} rows, at most {}", reach + 1, kMostOpen));
  return Support::yes();
}

int64_t rates_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  return partial_stride(listing.value(op.in[0]).shape[1].count) * 4;
}
int64_t decay_back_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  const int64_t columns = listing.value(op.in[0]).shape[1].count;
  const int64_t rows = columns == 0 ? 0 : listing.elements(op.in[0], counts) / columns;
  return rates_bytes(listing, op, counts) + partial_sums_bytes(rows, 2 * columns);
}

void log_decay(const KernelCall& call) {
  HWY_DYNAMIC_DISPATCH(ColumnRates)(call);
  const auto piece = HWY_DYNAMIC_DISPATCH(DecayRows);
  over_rows(call, call.in[0].dim(0), call.in[0].dim(1) * 8, piece);
}

void log_decay_dgrad(const KernelCall& call) {
  const int64_t T = call.in[0].dim(0), C = call.in[0].dim(1), run = C / call.in[1].dim(0);
  HWY_DYNAMIC_DISPATCH(ColumnRates)(call);
  const auto piece = HWY_DYNAMIC_DISPATCH(DecayBack);
  over_rows(call, partial_count(T), kRowsPerPartial * C * 12, piece);
  float* d_a = call.out[1].as<float>();
  float* d_bias = call.out.size() > 2 ? call.out[2].as<float>() : nullptr;
  std::fill_n(d_a, C / run, 0.0f);
  if (d_bias != nullptr) std::fill_n(d_bias, C, 0.0f);
  for (int64_t p = 0; p < partial_count(T); ++p) {
    const float* sums = partial_sum(static_cast<const std::byte*>(call.scratch) + partial_stride(C) * 4, p, 2 * C);
    for (int64_t c = 0; c < C; ++c) {
      d_a[c / run] += sums[c];
      if (d_bias != nullptr) d_bias[c] += sums[C + c];
    }
  }
}

void gated_norm(const KernelCall& call) {
  const auto piece = HWY_DYNAMIC_DISPATCH(GatedNormRows);
  over_rows(call, call.in[0].dim(0), 3 * call.in[0].dim(1) * size_of(call.in[0].dtype), piece);
}

int64_t gain_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  const int64_t columns = listing.value(op.in[1]).shape[1].count;
  return partial_sums_bytes(columns == 0 ? 0 : listing.elements(op.in[1], counts) / columns,
                            listing.value(op.in[3]).shape[0].count);
}

void gated_norm_dgrad(const KernelCall& call) {
  const int64_t T = call.in[1].dim(0), G = call.in[3].dim(0);
  const auto piece = HWY_DYNAMIC_DISPATCH(GatedNormBack);
  over_rows(call, partial_count(T), kRowsPerPartial * 5 * call.in[1].dim(1) * size_of(call.in[1].dtype), piece);
  float* d_gain = call.out[2].as<float>();
  std::fill_n(d_gain, G, 0.0f);
  for (int64_t p = 0; p < partial_count(T); ++p) {
    const float* sums = partial_sum(static_cast<const std::byte*>(call.scratch), p, G);
    for (int64_t i = 0; i < G; ++i) d_gain[i] += sums[i];
  }
}

/// A run of columns takes its gains from one run of them.
template <size_t x>
Support runs_of_gains(const ir::Listing& listing, const ir::Op& op) {
  Dtype type = Dtype::u8;
  if (Support in = operands_are(listing, op.in, x == 0 ? "xxa" : "xxxaa", "input", &type); !in) return in;
  if (listing.value(op.in[x + 2]).shape[0].count % op.attributes.integer("run") != 0)
    return Support::no("runs are not parts of the gain");
  return Support::yes();
}

}  // namespace

std::vector<KernelEntry> convolution_kernels() {
  return {{"causal_conv", "host", "highway", few_taps<0>, nullptr, causal_conv},
          {"causal_conv_dgrad", "host", "highway", few_taps<1>, nullptr, causal_conv_dgrad},
          {"causal_conv_before_dgrad", "host", "highway", few_taps<1>, nullptr, causal_conv_before_dgrad},
          {"log_decay", "host", "highway", takes<"xaa">, rates_bytes, log_decay},
          {"log_decay_dgrad", "host", "highway", takes<"xaaaa">, decay_back_bytes, log_decay_dgrad},
          {"gated_norm", "host", "highway", runs_of_gains<0>, nullptr, gated_norm},
          {"gated_norm_dgrad", "host", "highway", runs_of_gains<1>, gain_bytes, gated_norm_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE

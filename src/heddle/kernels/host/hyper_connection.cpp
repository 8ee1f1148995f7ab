// Streams of the residual: read, written, and the gradients; ops/hyper_connection.cpp has the formulas. T
// rows of n streams of H columns. A token's weights are some numbers and made one by one; what goes over its row is
// in vectors, with four streams as a constant. Gradients of base and scales are summed as gains of norms are
// (kernels/host/norm.cpp).
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/hyper_connection.cpp"
#include <cmath>

#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "heddle/kernels/stream_weights.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/column_sums-inl.h"
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

StreamWeights<float> stream_weights(const KernelCall& call, const device::TensorView& q) {
  const ir::Attributes& attributes = call.op->attributes;
  const int64_t n = attributes.integer("streams");
  return {.n = static_cast<int>(n),
          .iterations = static_cast<int>(attributes.integer_or("iterations", 1)),
          .writes = q.columns() != n,
          .mixes = q.columns() == n * (2 + n),
          .epsilon = static_cast<float>(attributes.number("epsilon")),
          .magnitude = static_cast<float>(attributes.number_or("magnitude", 2))};
}

/// y = Σ_i factor_i·x_i over `count` rows that stand H apart.
template <class X>
HWY_INLINE void mix_streams(const float* factors, const X* x, int64_t count, int64_t H, X* y) {
  sweep(H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
    V sum = hn::Mul(set(factors[0]), load(x + h, lanes));
    for (int64_t i = 1; i < count; ++i) sum = hn::MulAdd(set(factors[i]), load(x + i * H + h, lanes), sum);
    store(sum, y + h, lanes);
  });
}

template <class X>
void stream_read_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const StreamWeights<float> weights = stream_weights(call, call.in[1]);
  const int64_t n = weights.n, W = weights.count(), H = call.out[0].columns();
  const auto epsilon = static_cast<float>(call.op->attributes.number("norm_epsilon"));
  const auto *q = call.in[1].as<const float>(), *base = call.in[2].as<const float>(),
             *scale = call.in[3].as<const float>();
  float room[kStreamRoom];
  for (int64_t t = begin; t < end; ++t) {
    const X* x = call.in[0].as<const X>() + t * n * H;
    Sum squares;
    sweep(n * H, [&](int64_t h, auto lanes, auto nth) HEDDLE_BODY {
      const V v = load(x + h, lanes);
      squares.add_product(v, v, nth);
    });
    const float rstd = 1.0f / std::sqrt(squares.total() / static_cast<float>(n * H) + epsilon);
    call.out[2].as<float>()[t] = rstd;
    float* w = call.out[1].as<float>() + t * W;
    weights.make(q + t * W, rstd, base, scale, w, room);
    mix_streams(w, x, n, H, call.out[0].as<X>() + t * H);
  }
}

template <class X>
void stream_read_dgrad_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const StreamWeights<float> weights = stream_weights(call, call.in[2]);
  const int64_t n = weights.n, W = weights.count(), H = call.in[0].columns(), scales = call.in[4].elements();
  const auto *q = call.in[2].as<const float>(), *base = call.in[3].as<const float>(),
             *scale = call.in[4].as<const float>();
  const auto given = [&](size_t i) { return i < call.in.size() && call.in[i]; };
  const float none[kMostStreamWeights] = {};
  float room[kStreamRoom], own[kMostStreams];
  for (int64_t t = begin; t < end; ++t) {
    float* sums = partial_sum(call.scratch, t / kRowsPerPartial, W + scales);
    if (t % kRowsPerPartial == 0) std::fill_n(sums, W + scales, 0.0f);
    const X *x = call.in[1].as<const X>() + t * n * H, *dy = call.in[0].as<const X>() + t * H;
    const X* dres = given(7) ? call.in[7].as<const X>() + t * n * H : nullptr;
    X* dx = call.out[0].as<X>() + t * n * H;
    float dpre[kMostStreams];
    for (int64_t i = 0; i < n; ++i) {
      Sum dot;
      sweep(H, [&](int64_t h, auto lanes, auto nth)
                   HEDDLE_BODY { dot.add_product(load(dy + h, lanes), load(x + i * H + h, lanes), nth); });
      dpre[i] = dot.total();
    }
    const float rstd = call.in[5].as<const float>()[t];
    const float drstd =
        weights.gradient(q + t * W, rstd, base, scale, dpre, given(6) ? call.in[6].as<const float>() + t * W : none,
                         call.out[1].as<float>() + t * W, sums, sums + W, room);
    weights.make_pre(q + t * W, rstd, base, scale, own);
    const V along = set(drstd * rstd * rstd * rstd / static_cast<float>(n * H));
    for (int64_t i = 0; i < n; ++i) {
      const V pre = set(own[i]);
      sweep(H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
        V d = hn::Mul(pre, load(dy + h, lanes));
        d = hn::NegMulAdd(load(x + i * H + h, lanes), along, d);
        if (dres != nullptr) d = hn::Add(load(dres + i * H + h, lanes), d);
        store(d, dx + i * H + h, lanes);
      });
    }
  }
}

/// Streams that go on as they are: s_k = x_k + post_k·a.
template <class X>
void stream_add_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t n = call.op->attributes.integer("streams"), W = call.in[2].columns(), H = call.in[1].columns();
  for (int64_t t = begin; t < end; ++t) {
    const X *x = call.in[0].as<const X>() + t * n * H, *a = call.in[1].as<const X>() + t * H;
    const float* post = call.in[2].as<const float>() + t * W + first_of_writing(W, static_cast<int>(n));
    X* s = call.out[0].as<X>() + t * n * H;
    sweep(H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
      const V made = load(a + h, lanes);
      for (int64_t k = 0; k < n; ++k)
        store(hn::MulAdd(set(post[k]), made, load(x + k * H + h, lanes)), s + k * H + h, lanes);
    });
  }
}

template <class X>
void stream_add_dgrad_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t n = call.op->attributes.integer("streams"), W = call.in[3].columns(), H = call.in[2].columns();
  const int64_t first = first_of_writing(W, static_cast<int>(n));
  for (int64_t t = begin; t < end; ++t) {
    const X *ds = call.in[0].as<const X>() + t * n * H, *a = call.in[2].as<const X>() + t * H;
    const float* post = call.in[3].as<const float>() + t * W + first;
    X *dx = call.out[0].as<X>() + t * n * H, *da = call.out[1].as<X>() + t * H;
    V dots[kMostStreams];
    for (int64_t k = 0; k < n; ++k) dots[k] = zero();
    sweep(H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
      const V made = load(a + h, lanes);
      V sum = zero();
      for (int64_t k = 0; k < n; ++k) {
        const V d = load(ds + k * H + h, lanes);
        sum = hn::MulAdd(set(post[k]), d, sum);
        dots[k] = hn::MulAdd(made, d, dots[k]);
        store(d, dx + k * H + h, lanes);
      }
      store(sum, da + h, lanes);
    });
    float* dw = call.out[2].as<float>() + t * W;
    for (int64_t i = 0; i < first; ++i) dw[i] = 0;
    for (int64_t k = 0; k < n; ++k) dw[first + k] = hn::GetLane(hn::SumOfLanes(Floats(), dots[k]));
  }
}

/// `streams`: a constant, or 0.
template <int streams, class X>
void stream_write_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t n = streams > 0 ? streams : call.op->attributes.integer("streams");
  const int64_t W = n * (2 + n), H = call.in[1].columns();
  for (int64_t t = begin; t < end; ++t) {
    const X *x = call.in[0].as<const X>() + t * n * H, *a = call.in[1].as<const X>() + t * H;
    const float *post = call.in[2].as<const float>() + t * W + n, *comb = post + n;
    X* s = call.out[0].as<X>() + t * n * H;
    sweep(H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
      V row[streams > 0 ? streams : kMostStreams];
      for (int64_t j = 0; j < n; ++j) row[j] = load(x + j * H + h, lanes);
      const V made = load(a + h, lanes);
      for (int64_t k = 0; k < n; ++k) {
        V sum = hn::Mul(set(post[k]), made);
        for (int64_t j = 0; j < n; ++j) sum = hn::MulAdd(set(comb[j * n + k]), row[j], sum);
        store(sum, s + k * H + h, lanes);
      }
    });
  }
}

template <int streams, class X>
void stream_write_dgrad_rows(const KernelCall& call, int64_t begin, int64_t end) {
  constexpr int most = streams > 0 ? streams : kMostStreams;
  const int64_t n = streams > 0 ? streams : call.op->attributes.integer("streams");
  const int64_t W = n * (2 + n), H = call.in[2].columns();
  for (int64_t t = begin; t < end; ++t) {
    const X *ds = call.in[0].as<const X>() + t * n * H, *x = call.in[1].as<const X>() + t * n * H,
            *a = call.in[2].as<const X>() + t * H;
    const float *post = call.in[3].as<const float>() + t * W + n, *comb = post + n;
    X *dx = call.out[0].as<X>() + t * n * H, *da = call.out[1].as<X>() + t * H;
    V dots[most * (most + 1)];  // of a, then of each stream, with each ds
    for (int64_t i = 0; i < n * (n + 1); ++i) dots[i] = zero();
    sweep(H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
      V d[most];
      const V made = load(a + h, lanes);
      V sum = zero();
      for (int64_t k = 0; k < n; ++k) {
        d[k] = load(ds + k * H + h, lanes);
        sum = hn::MulAdd(set(post[k]), d[k], sum);
        dots[k] = hn::MulAdd(made, d[k], dots[k]);
      }
      store(sum, da + h, lanes);
      for (int64_t j = 0; j < n; ++j) {
        const V row = load(x + j * H + h, lanes);
        sum = zero();
        for (int64_t k = 0; k < n; ++k) {
          sum = hn::MulAdd(set(comb[j * n + k]), d[k], sum);
          dots[(j + 1) * n + k] = hn::MulAdd(row, d[k], dots[(j + 1) * n + k]);
        }
        store(sum, dx + j * H + h, lanes);
      }
    });
    float* dw = call.out[2].as<float>() + t * W;
    for (int64_t i = 0; i < n; ++i) dw[i] = 0;
    for (int64_t i = 0; i < n * (n + 1); ++i) dw[n + i] = hn::GetLane(hn::SumOfLanes(Floats(), dots[i]));
  }
}

}  // namespace

#define HEDDLE_ROWS_OF(Name, rows)                                                                  \
  void Name(const KernelCall& call, int64_t begin, int64_t end) {                                   \
    call.in[0].dtype == Dtype::bf16 ? rows<bf16>(call, begin, end) : rows<float>(call, begin, end); \
  }
HEDDLE_ROWS_OF(StreamsRead, stream_read_rows)
HEDDLE_ROWS_OF(StreamsReadGrad, stream_read_dgrad_rows)
#undef HEDDLE_ROWS_OF
#define HEDDLE_ROWS_OF(Name, weights, rows, added)                                               \
  void Name(const KernelCall& call, int64_t begin, int64_t end) {                                \
    const int64_t n = call.op->attributes.integer("streams");                                    \
    const bool four = n == 4, narrow = call.in[0].dtype == Dtype::bf16;                          \
    if (call.in[weights].columns() != n * (2 + n))                                               \
      return narrow ? added<bf16>(call, begin, end) : added<float>(call, begin, end);            \
    if (narrow) return four ? rows<4, bf16>(call, begin, end) : rows<0, bf16>(call, begin, end); \
    four ? rows<4, float>(call, begin, end) : rows<0, float>(call, begin, end);                  \
  }
HEDDLE_ROWS_OF(StreamsWrite, 2, stream_write_rows, stream_add_rows)
HEDDLE_ROWS_OF(StreamsWriteGrad, 3, stream_write_dgrad_rows, stream_add_dgrad_rows)
#undef HEDDLE_ROWS_OF
void StreamsAddPartials(const std::byte* scratch, int64_t partials, int64_t columns, float* sums) {
  add_partials(scratch, partials, columns, sums);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(StreamsRead);
HWY_EXPORT(StreamsReadGrad);
HWY_EXPORT(StreamsWrite);
HWY_EXPORT(StreamsWriteGrad);
HWY_EXPORT(StreamsAddPartials);

/// Bytes of all streams of a row, `times` over.
int64_t streams_bytes(const device::TensorView& streams, int64_t times) {
  return times * streams.columns() * size_of(streams.dtype);
}

void read_streams(const KernelCall& call) {
  over_rows(call.in[0].rows(), streams_bytes(call.in[0], 1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(StreamsRead)(call, begin, end);
  });
}

void read_streams_dgrad(const KernelCall& call) {
  const int64_t T = call.in[0].rows(), W = call.in[3].elements(), scales = call.in[4].elements();
  over_rows(
      T, streams_bytes(call.in[1], 3),
      [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(StreamsReadGrad)
        (call, begin, end);
      },
      kRowsPerPartial);
  float sums[kMostStreamWeights + 3];
  HWY_DYNAMIC_DISPATCH(StreamsAddPartials)(call.scratch, partial_count(T), W + scales, sums);
  std::copy_n(sums, W, call.out[2].as<float>());
  std::copy_n(sums + W, scales, call.out[3].as<float>());
}

int64_t stream_dgrad_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const int64_t sums = listing.value(op.in[3]).shape[0].count + listing.value(op.in[4]).shape[0].count;
  return partial_sums_bytes(listing.elements(op.in[5], rows), sums);
}

void write_streams(const KernelCall& call) {
  over_rows(call.in[1].rows(), streams_bytes(call.in[0], 2), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(StreamsWrite)(call, begin, end);
  });
}

void write_streams_dgrad(const KernelCall& call) {
  over_rows(call.in[2].rows(), streams_bytes(call.in[0], 3), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(StreamsWriteGrad)(call, begin, end);
  });
}

}  // namespace

std::vector<KernelEntry> hyper_connection_kernels() {
  return {{"read_streams", "host", "highway", takes<"xaaa">, nullptr, read_streams},
          {"read_streams_dgrad", "host", "highway", takes<"xxaaaaax">, stream_dgrad_scratch, read_streams_dgrad},
          {"write_streams", "host", "highway", takes<"xxa">, nullptr, write_streams},
          {"write_streams_dgrad", "host", "highway", takes<"xxxa">, nullptr, write_streams_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE

// LayerNorm, alone and fused with the residual addition before it, and its gradient. g the gain, b the bias, H
// columns, T rows.
//   mean = mean x, rstd = (mean (x − mean)² + ε)^−½, x̂ = (x − mean)·rstd, y = x̂·g + b
//   dx = dres + rstd·(g·dy − mean(g·dy) − x̂·mean(g·dy·x̂)), dg = Σ_t dy·x̂, db = Σ_t dy
// A row is read three times, after the first from the nearest cache. The same read gives dx, dg and db:
// blocks of kRowsPerPartial rows leave partial sums in scratch, which are added in block order.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/layer_norm.cpp"
#include <cmath>

#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/column_sums-inl.h"
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

/// `mean` is that of the row. Leaves y and returns rstd.
template <class X>
HWY_INLINE float norm_row(const X* x_H, float mean, const float* g_H, const float* b_H, int64_t H, double epsilon,
                          X* y_H) {
  const V mean_v = set(mean);
  Sum squares;
  sweep(H, [&](int64_t h, auto lanes, auto nth) HEDDLE_BODY {
    const V off = or_else(hn::Sub(load(x_H + h, lanes), mean_v), zero(), lanes);
    squares.add_product(off, off, nth);
  });
  const float rstd = 1.0f / std::sqrt(squares.total() / static_cast<float>(H) + static_cast<float>(epsilon));
  const V factor = set(rstd);
  sweep(H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
    const V normed = hn::Mul(hn::Sub(load(x_H + h, lanes), mean_v), factor);
    store(hn::MulAdd(normed, load(g_H + h, lanes), load(b_H + h, lanes)), y_H + h, lanes);
  });
  return rstd;
}

template <class X>
void norm(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns();
  const double epsilon = call.op->attributes.number("epsilon");
  for (int64_t t = begin; t < end; ++t) {
    const X* x_H = call.in[0].as<const X>() + t * H;
    Sum sum;
    sweep(H, [&](int64_t h, auto lanes, auto nth) HEDDLE_BODY { sum.add(load(x_H + h, lanes), nth); });
    const float mean = sum.total() / static_cast<float>(H);
    call.out[1].as<float>()[t] = mean;
    call.out[2].as<float>()[t] = norm_row(x_H, mean, call.in[1].as<const float>(), call.in[2].as<const float>(), H,
                                          epsilon, call.out[0].as<X>() + t * H);
  }
}

template <class X>
void add_norm(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns();
  const double epsilon = call.op->attributes.number("epsilon");
  for (int64_t t = begin; t < end; ++t) {
    const X *a_H = call.in[0].as<const X>() + t * H, *b_H = call.in[1].as<const X>() + t * H;
    X* s_H = call.out[0].as<X>() + t * H;
    Sum sum;
    sweep(H, [&](int64_t h, auto lanes, auto nth) HEDDLE_BODY {
      const V s = store(hn::Add(load(a_H + h, lanes), load(b_H + h, lanes)), s_H + h, lanes);
      sum.add(or_else(s, zero(), lanes), nth);
    });
    const float mean = sum.total() / static_cast<float>(H);
    call.out[2].as<float>()[t] = mean;
    call.out[3].as<float>()[t] = norm_row(s_H, mean, call.in[2].as<const float>(), call.in[3].as<const float>(), H,
                                          epsilon, call.out[1].as<X>() + t * H);
  }
}

/// One row; adds its share of dg and db to sums_2H, or sets them when it is the `first` of a block.
template <class X>
HWY_INLINE void dgrad_row(const KernelCall& call, int64_t t, bool first, float* sums_2H) {
  const int64_t H = call.in[0].columns();
  const X *dy_H = call.in[0].as<const X>() + t * H, *x_H = call.in[1].as<const X>() + t * H;
  const X* dres_H = call.in.size() > 5 && call.in[5] ? call.in[5].as<const X>() + t * H : nullptr;
  const auto* g_H = call.in[2].as<const float>();
  X* dx_H = call.out[0].as<X>() + t * H;
  const V mean = set(call.in[3].as<const float>()[t]), rstd = set(call.in[4].as<const float>()[t]);
  const auto normed = [&](V x) HEDDLE_BODY { return hn::Mul(hn::Sub(x, mean), rstd); };
  Sum sum, dot;
  sweep(H, [&](int64_t h, auto lanes, auto nth) HEDDLE_BODY {
    const V gdy = hn::Mul(load(g_H + h, lanes), load(dy_H + h, lanes));
    sum.add(gdy, nth);
    dot.add_product(gdy, normed(load(x_H + h, lanes)), nth);
    ask_for(dy_H + H + h, nth);
    ask_for(x_H + H + h, nth);
  });
  const V level = set(sum.total() / static_cast<float>(H)), along = set(dot.total() / static_cast<float>(H));
  float *dg_H = sums_2H, *db_H = sums_2H + H;
  sweep(H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
    const V dy = load(dy_H + h, lanes), x = normed(load(x_H + h, lanes));
    const V gdy = hn::Mul(load(g_H + h, lanes), dy);
    V dx = hn::Mul(rstd, hn::NegMulAdd(x, along, hn::Sub(gdy, level)));
    if (dres_H) dx = hn::Add(load(dres_H + h, lanes), dx);
    store(dx, dx_H + h, lanes);
    const V dg = first ? zero() : load(dg_H + h, lanes), db = first ? zero() : load(db_H + h, lanes);
    store(hn::MulAdd(dy, x, dg), dg_H + h, lanes);
    store(hn::Add(db, dy), db_H + h, lanes);
  });
}

template <class X>
void norm_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns();
  for (int64_t t = begin; t < end; ++t) {
    dgrad_row<X>(call, t, t % kRowsPerPartial == 0, partial_sum(call.scratch, t / kRowsPerPartial, 2 * H));
  }
}

}  // namespace

void LayerNormRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? norm<bf16>(call, begin, end) : norm<float>(call, begin, end);
}
void AddLayerNormRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? add_norm<bf16>(call, begin, end) : add_norm<float>(call, begin, end);
}
void LayerNormDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? norm_dgrad<bf16>(call, begin, end) : norm_dgrad<float>(call, begin, end);
}
/// sum_H = Σ of H columns, from the first-th on, of partial sums of 2H.
void LayerNormAddPartials(const std::byte* scratch, int64_t partials, int64_t first, int64_t H, float* sum_H) {
  sweep(H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
    V sum = zero();
    for (int64_t p = 0; p < partials; ++p)
      sum = hn::Add(sum, load(partial_sum(scratch, p, 2 * H) + first + h, lanes));
    store(sum, sum_H + h, lanes);
  });
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(LayerNormRows);
HWY_EXPORT(AddLayerNormRows);
HWY_EXPORT(LayerNormDgradRows);
HWY_EXPORT(LayerNormAddPartials);

int64_t row_bytes(const KernelCall& call) { return call.in[0].columns() * size_of(call.in[0].dtype); }

void layer_norm(const KernelCall& call) {
  over_rows(call, call.in[0].rows(), 2 * row_bytes(call), HWY_DYNAMIC_DISPATCH(LayerNormRows));
}

void add_layer_norm(const KernelCall& call) {
  over_rows(call, call.in[0].rows(), 4 * row_bytes(call), HWY_DYNAMIC_DISPATCH(AddLayerNormRows));
}

void layer_norm_dgrad(const KernelCall& call) {
  const int64_t T = call.in[0].rows(), H = call.in[0].columns();
  over_rows(call, T, 4 * row_bytes(call), HWY_DYNAMIC_DISPATCH(LayerNormDgradRows), kRowsPerPartial);
  for (const int64_t which : {0, 1}) {
    HWY_DYNAMIC_DISPATCH(LayerNormAddPartials)
    (call.scratch, partial_count(T), which * H, H, call.out[1 + which].as<float>());
  }
}

int64_t dgrad_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const int64_t H = listing.value(op.in[2]).shape[0].count;
  return partial_sums_bytes(listing.elements(op.in[3], rows), 2 * H);
}

}  // namespace

std::vector<KernelEntry> layer_norm_kernels() {
  return {{"layer_norm", "host", "highway", takes<"xaa">, nullptr, layer_norm},
          {"add_layer_norm", "host", "highway", takes<"xxaa">, nullptr, add_layer_norm},
          {"layer_norm_dgrad", "host", "highway", takes<"xxaaax">, dgrad_scratch, layer_norm_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE

// RMSNorm, alone and fused with the residual addition before it, and its gradient. The gain g has the width H;
// there are T rows of that width. A row of several norms counts as so many.
//   rstd = (mean x² + ε)^−½, y = x·rstd·(offset + g); with the offset in g,
//   dx = dres + rstd·(g·dy − x·rstd²·mean(g·dy·x)), dg = Σ_t dy·x·rstd
// A row is read twice, the second time from the nearest cache. The same read gives dx and dg: blocks of
// kRowsPerPartial rows leave partial sums in scratch, which are added in block order.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/norm.cpp"
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

HWY_INLINE V offset_of(const KernelCall& call) {
  return set(static_cast<float>(call.op->attributes.number_or("offset", 0)));
}

float rstd_of(float square_sum, int64_t H, double epsilon) {
  return 1.0f / std::sqrt(square_sum / static_cast<float>(H) + static_cast<float>(epsilon));
}

template <class X>
HWY_INLINE void scale_row(const X* x_H, const float* g_H, V offset, float rstd, int64_t H, X* y_H) {
  const V factor = set(rstd);
  sweep(H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
    const V g = hn::Add(offset, load(g_H + h, lanes));
    store(hn::Mul(hn::Mul(load(x_H + h, lanes), factor), g), y_H + h, lanes);
  });
}

template <class X>
void norm(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[1].elements();
  const double epsilon = call.op->attributes.number("epsilon");
  const auto* g_H = call.in[1].as<const float>();
  for (int64_t t = begin; t < end; ++t) {
    const X* x_H = call.in[0].as<const X>() + t * H;
    Sum squares;
    sweep(H, [&](int64_t h, auto lanes, auto nth) HEDDLE_BODY {
      const V x = load(x_H + h, lanes);
      squares.add_product(x, x, nth);
    });
    const float rstd = rstd_of(squares.total(), H, epsilon);
    call.out[1].as<float>()[t] = rstd;
    scale_row(x_H, g_H, offset_of(call), rstd, H, call.out[0].as<X>() + t * H);
  }
}

template <class X>
void add_norm(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns();
  const double epsilon = call.op->attributes.number("epsilon");
  const auto* g_H = call.in[2].as<const float>();
  for (int64_t t = begin; t < end; ++t) {
    const X *a_H = call.in[0].as<const X>() + t * H, *b_H = call.in[1].as<const X>() + t * H;
    X* s_H = call.out[0].as<X>() + t * H;
    Sum squares;
    sweep(H, [&](int64_t h, auto lanes, auto nth) HEDDLE_BODY {
      const V s = store(hn::Add(load(a_H + h, lanes), load(b_H + h, lanes)), s_H + h, lanes);
      squares.add_product(or_else(s, zero(), lanes), s, nth);
    });
    const float rstd = rstd_of(squares.total(), H, epsilon);
    call.out[2].as<float>()[t] = rstd;
    scale_row(s_H, g_H, offset_of(call), rstd, H, call.out[1].as<X>() + t * H);
  }
}

/// `count` rows from row t on; adds their share of dg to dg_H, or sets it when they are the `first` of a block.
template <int count, class X>
HWY_INLINE void dgrad_rows(const KernelCall& call, int64_t t, bool first, float* dg_H) {
  const int64_t H = call.in[2].elements();
  const X *dy = call.in[0].as<const X>() + t * H, *x = call.in[1].as<const X>() + t * H;
  const X* dres = call.in.size() > 4 && call.in[4] ? call.in[4].as<const X>() + t * H : nullptr;
  const auto* g_H = call.in[2].as<const float>();
  X* dx = call.out[0].as<X>() + t * H;
  const V offset = offset_of(call);
  Sum dots[count];
  sweep(H, [&](int64_t h, auto lanes, auto nth) HEDDLE_BODY {
    const V g = hn::Add(offset, load(g_H + h, lanes));
    for (int r = 0; r < count; ++r) {
      const V gdy = hn::Mul(g, load(dy + r * H + h, lanes));
      dots[r].add_product(gdy, load(x + r * H + h, lanes), Nth<decltype(nth)::value % 2>());
      ask_for(dy + (count + r) * H + h, nth);
      ask_for(x + (count + r) * H + h, nth);
      if (dres) ask_for(dres + (count + r) * H + h, nth);
    }
  });
  V rstd[count], along_x[count];
  for (int r = 0; r < count; ++r) {
    const float scale = call.in[3].as<const float>()[t + r];
    rstd[r] = set(scale);
    along_x[r] = set(scale * scale * (dots[r].total() / static_cast<float>(H)));
  }
  const auto row_gradients = [&](auto with_dres) HEDDLE_BODY {
    sweep(H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
      const V g = hn::Add(offset, load(g_H + h, lanes));
      V dg = first ? zero() : load(dg_H + h, lanes);
      for (int r = 0; r < count; ++r) {
        const V dy_h = load(dy + r * H + h, lanes), x_h = load(x + r * H + h, lanes);
        V dx_h = hn::Mul(rstd[r], hn::NegMulAdd(x_h, along_x[r], hn::Mul(g, dy_h)));
        if constexpr (with_dres) dx_h = hn::Add(load(dres + r * H + h, lanes), dx_h);
        store(dx_h, dx + r * H + h, lanes);
        dg = hn::MulAdd(hn::Mul(dy_h, x_h), rstd[r], dg);
      }
      store(dg, dg_H + h, lanes);
    });
  };
  if (dres) {
    row_gradients(std::true_type());
  } else {
    row_gradients(std::false_type());
  }
}

template <class X>
void norm_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[2].elements();
  for (int64_t block = begin; block < end; block += kRowsPerPartial) {
    float* dg_H = partial_sum(call.scratch, block / kRowsPerPartial, H);
    const int64_t stop = std::min(end, block + kRowsPerPartial);
    int64_t t = block;
    for (; t + 4 <= stop; t += 4) dgrad_rows<4, X>(call, t, t == block, dg_H);
    for (; t < stop; ++t) dgrad_rows<1, X>(call, t, t == block, dg_H);
  }
}

}  // namespace

void NormRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? norm<bf16>(call, begin, end) : norm<float>(call, begin, end);
}
void AddNormRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? add_norm<bf16>(call, begin, end) : add_norm<float>(call, begin, end);
}
void NormDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? norm_dgrad<bf16>(call, begin, end) : norm_dgrad<float>(call, begin, end);
}
void NormAddPartials(const std::byte* scratch, int64_t partials, int64_t H, float* dg_H) {
  add_partials(scratch, partials, H, dg_H);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(NormRows);
HWY_EXPORT(AddNormRows);
HWY_EXPORT(NormDgradRows);
HWY_EXPORT(NormAddPartials);

int64_t row_bytes(const KernelCall& call) { return call.in[0].columns() * size_of(call.in[0].dtype); }

void rms_norm(const KernelCall& call) {
  const int64_t H = call.in[1].elements(), T = call.in[0].elements() / H;
  over_rows(call, T, 2 * H * size_of(call.in[0].dtype), HWY_DYNAMIC_DISPATCH(NormRows));
}

void add_rms_norm(const KernelCall& call) {
  over_rows(call, call.in[0].rows(), 4 * row_bytes(call), HWY_DYNAMIC_DISPATCH(AddNormRows));
}

void rms_norm_dgrad(const KernelCall& call) {
  const int64_t H = call.in[2].elements(), T = call.in[0].elements() / H;
  over_rows(call, T, 4 * H * size_of(call.in[0].dtype), HWY_DYNAMIC_DISPATCH(NormDgradRows), kRowsPerPartial);
  HWY_DYNAMIC_DISPATCH(NormAddPartials)(call.scratch, partial_count(T), H, call.out[1].as<float>());
}

int64_t dgrad_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const int64_t H = listing.value(op.in[2]).shape[0].count;
  return partial_sums_bytes(listing.elements(op.in[3], rows), H);
}

}  // namespace

std::vector<KernelEntry> norm_kernels() {
  return {{"rms_norm", "host", "highway", takes<"xa">, nullptr, rms_norm},
          {"add_rms_norm", "host", "highway", takes<"xxa">, nullptr, add_rms_norm},
          {"rms_norm_dgrad", "host", "highway", takes<"xxaax">, dgrad_scratch, rms_norm_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE

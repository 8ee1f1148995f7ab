// The end of a step: gradient norm, clipping, AdamW (Loshchilov and Hutter, arXiv 1711.05101), all state in one
// pass, and weights made from their masters. A parameter used in several places has one accumulator a use; they are
// summed in order.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/optimizer.cpp"
#include <cmath>

#include "heddle/kernels/exact_grid.h"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;
using device::TensorView;

template <class Lanes>
HWY_INLINE V sum_of_uses(std::span<const TensorView> uses, int64_t i, Lanes lanes) {
  V sum = load(uses[0].as<const float>() + i, lanes);
  for (size_t u = 1; u < uses.size(); ++u) sum = hn::Add(sum, load(uses[u].as<const float>() + i, lanes));
  return sum;
}

template <class X>
HWY_INLINE void adamw(const KernelCall& call, X* copy, int64_t begin, int64_t end) {
  const ir::Attributes& at = call.op->attributes;
  const auto* hyper = call.in[1].as<const double>();
  const V clip = set(static_cast<float>(call.in[0].as<const double>()[0]));
  const V beta1 = set(static_cast<float>(at.number("beta1"))), beta2 = set(static_cast<float>(at.number("beta2")));
  const V rest1 = set(static_cast<float>(1 - at.number("beta1")));
  const V rest2 = set(static_cast<float>(1 - at.number("beta2")));
  const V epsilon = set(static_cast<float>(at.number("epsilon"))),
          decay = set(static_cast<float>(at.number("decay")));
  const V rate = set(static_cast<float>(hyper[0]));
  const V grown1 = set(static_cast<float>(1 / hyper[1])), grown2 = set(static_cast<float>(1 / hyper[2]));
  const std::span<const TensorView> uses = call.in.subspan(2);
  auto *p = call.updates[0].as<float>(), *m = call.updates[1].as<float>(), *v = call.updates[2].as<float>();
  sweep(end - begin, [&](int64_t from, auto lanes, auto) HEDDLE_BODY {
    const int64_t i = begin + from;
    const V g = hn::Mul(clip, sum_of_uses(uses, i, lanes));
    const V m_i = hn::MulAdd(rest1, g, hn::Mul(beta1, load(m + i, lanes)));
    const V v_i = hn::MulAdd(hn::Mul(rest2, g), g, hn::Mul(beta2, load(v + i, lanes)));
    store(m_i, m + i, lanes);
    store(v_i, v + i, lanes);
    const V step = hn::Div(hn::Mul(m_i, grown1), hn::Add(hn::Sqrt(hn::Mul(v_i, grown2)), epsilon));
    const V before = load(p + i, lanes);
    const V after = hn::NegMulAdd(rate, hn::MulAdd(decay, before, step), before);
    store(after, p + i, lanes);
    if (copy) store(after, copy + i, lanes);
  });
}

/// Σ g² over the elements begin .. end, squares and sum in f64.
HWY_INLINE double square_sum(const KernelCall& call, int64_t begin, int64_t end) {
#if HWY_TARGET == HWY_SCALAR
  double total = 0;
  sweep(end - begin, [&](int64_t from, auto lanes, auto) HEDDLE_BODY {
    const double g = hn::GetLane(sum_of_uses(call.in, begin + from, lanes));
    total += g * g;
  });
  return total;
#else
  HWY_ALIGN float g[kLanes];
  const hn::ScalableTag<double> wide;
  const hn::Half<Floats> half;
  using D = hn::Vec<hn::ScalableTag<double> >;
  D sums[2] = {hn::Zero(wide), hn::Zero(wide)};
  sweep(end - begin, [&](int64_t from, auto lanes, auto) HEDDLE_BODY {
    // Reading alone is bound by the lines in flight: more of them are asked for, into the larger cache.
    for (const TensorView& use : call.in) __builtin_prefetch(use.as<const float>() + begin + from + 1024, 0, 2);
    store(sum_of_uses(call.in, begin + from, lanes), g, Whole{});
    for (int part = 0; part < 2; ++part) {
      const D x = hn::PromoteTo(wide, hn::Load(half, g + part * (kLanes / 2)));
      sums[part] = hn::MulAdd(x, x, sums[part]);
    }
  });
  return hn::GetLane(hn::SumOfLanes(wide, hn::Add(sums[0], sums[1])));
#endif
}

}  // namespace

void AdamwPiece(const KernelCall& call, int64_t begin, int64_t end) {
  const TensorView copy = call.updates.size() > 3 ? call.updates[3] : TensorView{};
  if (copy && copy.dtype == Dtype::bf16) {
    adamw<bf16>(call, copy.as<bf16>(), begin, end);
  } else {
    adamw<float>(call, copy.as<float>(), begin, end);
  }
}

double SquareSum(const KernelCall& call, int64_t begin, int64_t end) { return square_sum(call, begin, end); }

void CastPiece(const KernelCall& call, int64_t begin, int64_t end) {
  const auto* from = call.in[0].as<const float>() + begin;
  const auto cast = [&](auto* to) HEDDLE_BODY {
    sweep(end - begin,
          [&](int64_t i, auto lanes, auto) HEDDLE_BODY { store(load(from + i, lanes), to + begin + i, lanes); });
  };
  if (call.updates[0].dtype == Dtype::bf16) {
    cast(call.updates[0].as<bf16>());
  } else {
    cast(call.updates[0].as<float>());
  }
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(AdamwPiece);
HWY_EXPORT(SquareSum);
HWY_EXPORT(CastPiece);

/// Elements of one partial sum of squares.
constexpr int64_t kSquaresPerPartial = 16 << 10;

void grad_square_sum(const KernelCall& call) {
  const int64_t count = call.in[0].elements();
  const int64_t blocks = (count + kSquaresPerPartial - 1) / kSquaresPerPartial;
  auto* partials = reinterpret_cast<double*>(call.scratch);
  over_rows(blocks, kSquaresPerPartial * 4 * std::ssize(call.in), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kSquaresPerPartial;
      partials[b] = HWY_DYNAMIC_DISPATCH(SquareSum)(call, first, std::min(count, first + kSquaresPerPartial));
    }
  });
  double part = 0;
  for (int64_t b = 0; b < blocks; ++b) part += partials[b];
  call.out[0].as<double>()[0] = part;
}

int64_t square_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return (listing.elements(op.in[0], rows) / kSquaresPerPartial + 1) * 8;
}

/// norm = √Σ part; clip = min(1, max_norm/(norm + 1e-6)), 1 when max_norm is 0, and 0 when the norm is not finite.
void grad_norm(const KernelCall& call) {
  double sum = 0;
  for (const device::TensorView& part : call.in) {
    const auto* p = part.as<const double>();
    sum += part.elements() == kSquareLimbs ? ExactSquares::value(p) : p[0];
  }
  const double norm = std::sqrt(sum), max_norm = call.op->attributes.number("max_norm");
  double clip = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  if (!std::isfinite(norm)) clip = 0;
  call.out[0].as<double>()[0] = norm;
  call.out[1].as<double>()[0] = clip;
}

void adamw(const KernelCall& call) {
  if (call.in[0].as<const double>()[0] == 0) return;  // a gradient that is not finite: the step is left out
  over_rows(
      call.updates[0].elements(), 4 * std::ssize(call.in) + 28,
      [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(AdamwPiece)
        (call, begin, end);
      },
      kElementsPerPiece);
}

void cast_weight(const KernelCall& call) {
  over_rows(
      call.in[0].elements(), 4 + size_of(call.updates[0].dtype),
      [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(CastPiece)
        (call, begin, end);
      },
      kElementsPerPiece);
}

}  // namespace

std::vector<KernelEntry> optimizer_kernels() {
  return {{"grad_square_sum", "host", "highway", takes<"a*">, square_scratch, grad_square_sum},
          {"grad_norm", "host", "plain", takes<"d*">, nullptr, grad_norm},
          {"adamw", "host", "highway", takes<"dda*", "aaax">, nullptr, adamw},
          {"cast_weight", "host", "highway", takes<"a", "x">, nullptr, cast_weight}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE

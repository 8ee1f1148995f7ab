// The end of a step in one pass each: Σ g², AdamW with clipping folded in and the rounded copy written on the way,
// and weights rounded from their masters. Elements of a parameter are one long row.
//
// Σ g² is formed in f64 by blocks of kElementsPerPiece elements whose sums are added in block order.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/optimizer.cpp"
#include "heddle/kernels/host/adamw_constants.h"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// Compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;
using device::TensorView;

/// Σ over the uses of a parameter, in order.
template <class Lanes>
HWY_INLINE V gradient(std::span<const TensorView> uses, int64_t i, Lanes lanes) {
  V g = load(uses[0].as<const float>() + i, lanes);
  for (size_t u = 1; u < uses.size(); ++u) g = hn::Add(g, load(uses[u].as<const float>() + i, lanes));
  return g;
}

/// Sums of g² of the blocks from `begin` on.
void SquareSums(const KernelCall& call, int64_t begin, int64_t end) {
  const hn::ScalableTag<double> wide;
  const hn::Rebind<float, decltype(wide)> narrow;
  auto* sums = reinterpret_cast<double*>(call.scratch);
  for (int64_t block = begin; block < end; block += kElementsPerPiece) {
    const int64_t count = std::min(kElementsPerPiece, end - block);
    auto a = hn::Zero(wide), b = hn::Zero(wide);
    sweep(count, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
      HWY_ALIGN float g[kLanes];
      hn::Store(gradient(call.in, block + i, lanes), Floats(), g);
      for (int64_t k = 0; k < kLanes; k += 2 * static_cast<int64_t>(hn::MaxLanes(wide))) {
        const auto x = hn::PromoteTo(wide, hn::Load(narrow, g + k));
        a = hn::MulAdd(x, x, a);
        if (kLanes > static_cast<int64_t>(hn::MaxLanes(wide))) {
          const auto y = hn::PromoteTo(wide, hn::Load(narrow, g + k + hn::MaxLanes(wide)));
          b = hn::MulAdd(y, y, b);
        }
      }
    });
    sums[block / kElementsPerPiece] = hn::GetLane(hn::SumOfLanes(wide, hn::Add(a, b)));
  }
}

template <class Copy>
void adamw(const KernelCall& call, const AdamwConstants& c, int64_t begin, int64_t end) {
  const std::span<const TensorView> uses = call.in.subspan(2);
  float *p = call.updates[0].as<float>(), *m = call.updates[1].as<float>(), *v = call.updates[2].as<float>();
  Copy* copy = call.updates.size() > 3 ? call.updates[3].as<Copy>() : nullptr;
  const V clip = set(c.clip), beta1 = set(c.beta1), rest1 = set(c.rest1), beta2 = set(c.beta2), rest2 = set(c.rest2);
  const V epsilon = set(c.epsilon), kept = set(1.0f - c.rate * c.decay), rate = set(c.rate * c.over1);
  const V over2 = set(c.over2);
  sweep(end - begin, [&](int64_t k, auto lanes, auto) HEDDLE_BODY {
    const int64_t i = begin + k;
    const V g = hn::Mul(clip, gradient(uses, i, lanes));
    const V m_new = hn::MulAdd(beta1, load(m + i, lanes), hn::Mul(rest1, g));
    const V v_new = hn::MulAdd(beta2, load(v + i, lanes), hn::Mul(hn::Mul(rest2, g), g));
    store(m_new, m + i, lanes);
    store(v_new, v + i, lanes);
    const V root = hn::Add(hn::Sqrt(hn::Mul(v_new, over2)), epsilon);
    const V p_new = hn::NegMulAdd(hn::Div(m_new, root), rate, hn::Mul(kept, load(p + i, lanes)));
    store(p_new, p + i, lanes);
    if (copy != nullptr) store(p_new, copy + i, lanes);
  });
}
void AdamwBf16(const KernelCall& call, const AdamwConstants& c, int64_t begin, int64_t end) {
  adamw<bf16>(call, c, begin, end);
}
void AdamwF32(const KernelCall& call, const AdamwConstants& c, int64_t begin, int64_t end) {
  adamw<float>(call, c, begin, end);
}

void Cast(const KernelCall& call, int64_t begin, int64_t end) {
  const auto* from = call.in[0].as<const float>();
  auto* to = call.updates[0].as<bf16>();
  sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    store(load(from + begin + i, lanes), to + begin + i, lanes);
  });
}

}  // namespace
}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;

HWY_EXPORT(SquareSums);
HWY_EXPORT(AdamwBf16);
HWY_EXPORT(AdamwF32);
HWY_EXPORT(Cast);

int64_t blocks(int64_t elements) { return (elements + kElementsPerPiece - 1) / kElementsPerPiece; }

void grad_square_sum(const KernelCall& call) {
  const int64_t elements = call.in[0].elements();
  const auto piece = HWY_DYNAMIC_DISPATCH(SquareSums);
  over_rows(
      elements, 4 * std::ssize(call.in), [&](int64_t begin, int64_t end) { piece(call, begin, end); },
      kElementsPerPiece);
  double part = 0;
  for (int64_t b = 0; b < blocks(elements); ++b) part += reinterpret_cast<const double*>(call.scratch)[b];
  call.out[0].as<double>()[0] = part;
}

int64_t square_scratch(const ir::Stage& stage, const ir::Op& op, const ir::RowCounts& rows) {
  return blocks(stage.elements(op.in[0], rows)) * 8;
}

void adamw(const KernelCall& call) {
  const double clip = call.in[0].as<const double>()[0];
  if (clip == 0) return;
  const ir::Attributes& at = call.op->attributes;
  const auto* hyper = call.in[1].as<const double>();
  const double beta1 = at.number("beta1"), beta2 = at.number("beta2");
  const AdamwConstants c{static_cast<float>(clip),         static_cast<float>(beta1),
                    static_cast<float>(1 - beta1),    static_cast<float>(beta2),
                    static_cast<float>(1 - beta2),    static_cast<float>(at.number("epsilon")),
                    static_cast<float>(at.number("decay")), static_cast<float>(hyper[0]),
                    static_cast<float>(1 / hyper[1]), static_cast<float>(1 / hyper[2])};
  const bool narrow = call.updates.size() > 3 && call.updates[3].dtype == Dtype::bf16;
  const auto piece = narrow ? HWY_DYNAMIC_DISPATCH(AdamwBf16) : HWY_DYNAMIC_DISPATCH(AdamwF32);
  over_rows(
      call.updates[0].elements(), 28, [&](int64_t begin, int64_t end) { piece(call, c, begin, end); },
      kElementsPerPiece);
}

void cast_weight(const KernelCall& call) {
  const auto piece = HWY_DYNAMIC_DISPATCH(Cast);
  over_rows(
      call.in[0].elements(), 6, [&](int64_t begin, int64_t end) { piece(call, begin, end); }, kElementsPerPiece);
}

Support casts(const ir::Stage& stage, const ir::Op& op) {
  if (stage.value(op.in[0]).dtype != Dtype::f32 || stage.value(op.updates[0]).dtype != Dtype::bf16) {
    return Support::no("casts f32 to bf16 only");
  }
  return stage.value(op.updates[0]).layout == ir::Layout::rows ? Support::yes() : Support::no("the weight is packed");
}

}  // namespace

std::vector<KernelEntry> optimizer_kernels() {
  return {{"grad_square_sum", "host", "highway", takes<"a*">, square_scratch, grad_square_sum},
          {"adamw", "host", "highway", takes<"dda*", "aaax">, nullptr, adamw},
          {"cast_weight", "host", "highway", casts, nullptr, cast_weight}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE

// Rows of the fused head, in vectors. The exponential has ln 2 in two parts (Cody and Waite), so that p touches
// nothing but the exponent:
//   e^x · 2^-p = 2^(n - p) · e^(x - n·ln 2), n = round(x / ln 2)
#include "heddle/kernels/host/loss/linear_cross_entropy_rows.h"

#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/loss/linear_cross_entropy_rows.cpp"
#include "hwy/foreach_target.h"
// Compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {

constexpr float kRounder = 0x1.8p23f;  // adding it rounds to an integer, which then stands in the low bits

/// e^x · 2^-power. `rounder` is kRounder less the power; x below `lowest` is raised to it. NaN stays NaN.
HWY_INLINE V exponential(V x, V rounder, V lowest) {
  x = at_least(lowest, x);
  const V rounded = hn::MulAdd(x, set(1.44269504f), rounder);
  const V n = hn::Sub(rounded, rounder);
  V r = hn::NegMulAdd(n, set(0.693359375f), x);
  r = hn::NegMulAdd(n, set(-2.12194440e-4f), r);
  // The polynomial of degree 5 with the least relative error on ±ln 2 / 2: 1.4e-7.
  V y = hn::MulAdd(set(0.00829763338f), r, set(0.0419155285f));
  y = hn::MulAdd(y, r, set(0.166675761f));
  y = hn::MulAdd(y, r, set(0.499988943f));
  y = hn::MulAdd(y, r, set(0.999999702f));
  y = hn::MulAdd(y, r, set(1.00000012f));
  const Words words;
  return hn::BitCast(Floats(), hn::Add(hn::BitCast(words, y), hn::ShiftLeft<23>(hn::BitCast(words, rounded))));
}

HWY_INLINE void store_positive(V v, float* p, Whole) { hn::StoreU(v, Floats(), p); }
/// Rounds to nearest, ties upwards, which takes half the time of ties to even.
HWY_INLINE void store_positive(V v, bf16* p, Whole) {
  const hn::Rebind<uint16_t, Floats> halves;
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::BitCast(Words(), v), hn::Set(Words(), 0x8000u)));
  hn::StoreU(hn::TruncateTo(halves, rounded), halves, reinterpret_cast<uint16_t*>(p));
}
template <class T>
HWY_INLINE void store_positive(V v, T* p, Part part) {
  store(v, p, part);
}

template <class T, bool keep>
RowShare share(const float* logits, int64_t count, int32_t power, T* out) {
  const V rounder = set(kRounder - static_cast<float>(power));
  const V lowest = set(static_cast<float>((power - 120) * 0.69314718055994531));
  Sum sum;
  V most[2] = {set(-3.4e38f), set(-3.4e38f)};
  sweep(count, [&](int64_t i, auto lanes, auto nth) HEDDLE_BODY {
    const V x = load(logits + i, lanes);
    most[nth % 2] = hn::Max(most[nth % 2], or_else(x, most[nth % 2], lanes));
    const V e = exponential(x, rounder, lowest);
    if constexpr (keep) store_positive(e, out + i, lanes);
    sum.add(or_else(e, zero(), lanes), nth);
  });
  return {sum.total(), hn::GetLane(hn::MaxOfLanes(Floats(), hn::Max(most[0], most[1])))};
}

RowShare Exponentials(const float* logits, int64_t count, int32_t power, void* out, Dtype dtype) {
  if (out == nullptr) return share<float, false>(logits, count, power, nullptr);
  if (dtype == Dtype::bf16) return share<bf16, true>(logits, count, power, static_cast<bf16*>(out));
  return share<float, true>(logits, count, power, static_cast<float*>(out));
}

float LargestLogit(const float* logits, int64_t count) {
  V most[4] = {set(-3.4e38f), set(-3.4e38f), set(-3.4e38f), set(-3.4e38f)};
  sweep(count, [&](int64_t i, auto lanes, auto nth) HEDDLE_BODY {
    most[nth] = hn::Max(most[nth], or_else(load(logits + i, lanes), most[nth], lanes));
  });
  return hn::GetLane(hn::MaxOfLanes(Floats(), hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]))));
}

template <class From, class To>
void scale_lanes(const void* in, int64_t count, float factor, void* out) {
  const V by = set(factor);
  sweep(count, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    store(hn::Mul(by, load(static_cast<const From*>(in) + i, lanes)), static_cast<To*>(out) + i, lanes);
  });
}

void ScaleRow(const void* in, Dtype in_dtype, int64_t count, float factor, void* out, Dtype out_dtype) {
  if (in_dtype == Dtype::bf16) {
    if (out_dtype == Dtype::bf16) return scale_lanes<bf16, bf16>(in, count, factor, out);
    return scale_lanes<bf16, float>(in, count, factor, out);
  }
  if (out_dtype == Dtype::bf16) return scale_lanes<float, bf16>(in, count, factor, out);
  return scale_lanes<float, float>(in, count, factor, out);
}

}  // namespace
}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {

HWY_EXPORT(Exponentials);
HWY_EXPORT(LargestLogit);
HWY_EXPORT(ScaleRow);

float largest_logit(const float* logits, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(LargestLogit)(logits, count);
}
RowShare exponentials(const float* logits, int64_t count, int32_t power, void* out, Dtype out_dtype) {
  return HWY_DYNAMIC_DISPATCH(Exponentials)(logits, count, power, out, out_dtype);
}
void scale_row(const void* in, Dtype in_dtype, int64_t count, float factor, void* out, Dtype out_dtype) {
  HWY_DYNAMIC_DISPATCH(ScaleRow)(in, in_dtype, count, factor, out, out_dtype);
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE

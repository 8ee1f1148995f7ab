// Rows of the fused head, in vectors. The exponential is that of lanes-inl.h with the power of two kept apart:
// e^x · 2^-p = 2^(n - p) · e^(x - n·ln 2) with n = round(x / ln 2), so that p is exact.
#include "heddle/kernels/host/linear_cross_entropy_rows.h"

#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/linear_cross_entropy_rows.cpp"
#include "hwy/foreach_target.h"
// Compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {

using Integers = hn::RebindToSigned<Floats>;

constexpr float kRounder = 0x1.8p23f;  // adding it rounds to an integer, which then stands in the low bits
constexpr int32_t kRounderBits = 0x4b400000;
constexpr int32_t kExponentBias = 127;

/// `base` is the bits of kRounder less the exponent bias, plus the power.
HWY_INLINE V exponential(V x, hn::Vec<Integers> base) {
  const Integers integers;
  x = hn::Min(set(kMostLogit), hn::Max(set(-kMostLogit), x));  // this order keeps a NaN
  const V rounded = hn::MulAdd(x, set(1.44269504f), set(kRounder));
  const V n = hn::Sub(rounded, set(kRounder));
  V r = hn::NegMulAdd(n, set(0.693359375f), x);
  r = hn::NegMulAdd(n, set(-2.12194440e-4f), r);
  V y = hn::MulAdd(set(1.9875691500e-4f), r, set(1.3981999507e-3f));
  y = hn::MulAdd(y, r, set(8.3334519073e-3f));
  y = hn::MulAdd(y, r, set(4.1665795894e-2f));
  y = hn::MulAdd(y, r, set(1.6666665459e-1f));
  y = hn::MulAdd(y, r, set(5.0000001201e-1f));
  y = hn::Add(hn::MulAdd(y, hn::Mul(r, r), r), set(1.0f));
  auto exponent = hn::Sub(hn::BitCast(integers, rounded), base);
  exponent = hn::Min(hn::Max(exponent, hn::Zero(integers)), hn::Set(integers, 2 * kExponentBias));
  return hn::Mul(y, hn::BitCast(Floats(), hn::ShiftLeft<23>(exponent)));  // NaN times a power stays NaN
}

HWY_INLINE void store_positive(V v, float* p, Whole) { hn::StoreU(v, Floats(), p); }
/// Rounds like store(), without its care for NaN beyond the one that arithmetic makes.
HWY_INLINE void store_positive(V v, bf16* p, Whole) {
  const hn::Rebind<uint16_t, Floats> halves;
  const auto word = hn::BitCast(Words(), v);
  const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(Words(), 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(word, hn::Set(Words(), 0x7fffu)), odd));
  hn::StoreU(hn::TruncateTo(halves, rounded), halves, reinterpret_cast<uint16_t*>(p));
}
template <class T>
HWY_INLINE void store_positive(V v, T* p, Part part) {
  store(v, p, part);
}

template <class T, bool keep>
RowShare share(const float* logits, int64_t count, int32_t power, T* out) {
  const auto base = hn::Set(Integers(), kRounderBits - kExponentBias + power);
  Sum sum;
  V most[2] = {set(-3.4e38f), set(-3.4e38f)};
  sweep(count, [&](int64_t i, auto lanes, auto nth) HEDDLE_BODY {
    const V x = load(logits + i, lanes);
    most[nth % 2] = hn::Max(most[nth % 2], or_else(x, most[nth % 2], lanes));
    const V e = exponential(x, base);
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

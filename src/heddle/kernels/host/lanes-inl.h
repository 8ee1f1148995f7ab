// Vectors of floats for the kernels that stream through memory: loads and stores of f32 and bf16, sweeps along a
// row, sums, and the few functions that activations need. Compiled once for each instruction set.
//
// A bf16 is widened exactly and rounded to nearest even as base/dtype.h does, denormals and NaN included.
// A row's tail shorter than a vector is read and written without touching what lies beyond.
#if defined(HEDDLE_KERNELS_HOST_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_LANES_INL_H
#undef HEDDLE_KERNELS_HOST_LANES_INL_H
#else
#define HEDDLE_KERNELS_HOST_LANES_INL_H
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "heddle/base/dtype.h"
#include "hwy/highway.h"

// A sweep calls its body at several places and must not call it for real.
#undef HEDDLE_BODY
#define HEDDLE_BODY HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Words = hn::RebindToUnsigned<Floats>;
using V = hn::Vec<Floats>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));

/// The part of a vector that is there: all lanes, or the first `count`.
struct Whole {};
struct Part {
  int64_t count;
};

HWY_INLINE V set(float x) { return hn::Set(Floats(), x); }
HWY_INLINE V zero() { return hn::Zero(Floats()); }

HWY_INLINE V load(const float* p, Whole) { return hn::LoadU(Floats(), p); }
HWY_INLINE V load(const bf16* p, Whole) {
  const hn::Rebind<uint16_t, Floats> halves;
  const auto words = hn::PromoteTo(Words(), hn::LoadU(halves, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(words));
}
/// Lanes that are not there are zero.
template <class T>
HWY_INLINE V load(const T* p, Part part) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<T, float>) {
    return hn::MaskedLoad(hn::FirstN(Floats(), static_cast<size_t>(part.count)), Floats(), p);
  } else {
    const hn::Rebind<uint16_t, Floats> halves;
    const auto mask = hn::FirstN(halves, static_cast<size_t>(part.count));
    const auto words = hn::PromoteTo(Words(), hn::MaskedLoad(mask, halves, reinterpret_cast<const uint16_t*>(p)));
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(words));
  }
#else
  HWY_ALIGN T lanes[kLanes] = {};
  std::memcpy(lanes, p, static_cast<size_t>(part.count) * sizeof(T));
  return load(lanes, Whole{});
#endif
}

/// The bits of the nearest bf16, in the lower half of each word.
HWY_INLINE hn::Vec<Words> bf16_bits(V v) {
  const auto word = hn::BitCast(Words(), v);
  const auto upper = hn::ShiftRight<16>(word);
  const auto even = hn::Add(hn::And(upper, hn::Set(Words(), 1u)), hn::Set(Words(), 0x7fffu));
  const auto rounded = hn::ShiftRight<16>(hn::Add(word, even));
  const auto nan = hn::RebindMask(Words(), hn::IsNaN(v));
  return hn::IfThenElse(nan, hn::Or(upper, hn::Set(Words(), 0x40u)), rounded);
}

/// Stores v, rounded to the type of p, and returns what was stored.
HWY_INLINE V store(V v, float* p, Whole) {
  hn::StoreU(v, Floats(), p);
  return v;
}
HWY_INLINE V store(V v, bf16* p, Whole) {
#if HWY_TARGET <= HWY_AVX3
  // Rounds as bf16_bits does, with the numbers left in the upper halves, and one shuffle to bring these together.
  const __m512i word = _mm512_castps_si512(v.raw);
  const __m512i even = _mm512_and_si512(_mm512_srli_epi32(word, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(word, _mm512_set1_epi32(0x7fff)), even);
  const __mmask16 nan = _mm512_cmp_ps_mask(v.raw, v.raw, _CMP_UNORD_Q);
  const __m512i stored = _mm512_mask_or_epi32(rounded, nan, word, _mm512_set1_epi32(0x400000));
  const __m512i odd_halves = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1,  //
                                              31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_castsi512_si256(_mm512_permutexvar_epi16(odd_halves, stored)));
  return V{_mm512_castsi512_ps(_mm512_and_si512(stored, _mm512_set1_epi32(-0x10000)))};
#else
  const hn::Rebind<uint16_t, Floats> halves;
  const auto bits = bf16_bits(v);
  hn::StoreU(hn::TruncateTo(halves, bits), halves, reinterpret_cast<uint16_t*>(p));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(bits));
#endif
}
template <class T>
HWY_INLINE V store(V v, T* p, Part part) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<T, float>) {
    hn::BlendedStore(v, hn::FirstN(Floats(), static_cast<size_t>(part.count)), Floats(), p);
    return v;
  } else {
    const hn::Rebind<uint16_t, Floats> halves;
    const auto bits = bf16_bits(v);
    const auto mask = hn::FirstN(halves, static_cast<size_t>(part.count));
    hn::BlendedStore(hn::TruncateTo(halves, bits), mask, halves, reinterpret_cast<uint16_t*>(p));
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(bits));
  }
#else
  HWY_ALIGN T lanes[kLanes];
  const V stored = store(v, lanes, Whole{});
  std::memcpy(p, lanes, static_cast<size_t>(part.count) * sizeof(T));
  return stored;
#endif
}

/// `v` with `other` in the lanes that are not there.
HWY_INLINE V or_else(V v, V, Whole) { return v; }
HWY_INLINE V or_else(V v, V other, Part part) {
  return hn::IfThenElse(hn::FirstN(Floats(), static_cast<size_t>(part.count)), v, other);
}

template <int n>
using Nth = std::integral_constant<int, n>;

/// Calls body(i, Whole or Part, Nth<i ÷ lanes mod 4>) for every vector of 0 .. n.
template <class Body>
HWY_INLINE void sweep(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    body(i, Whole{}, Nth<0>());
    body(i + kLanes, Whole{}, Nth<1>());
    body(i + 2 * kLanes, Whole{}, Nth<2>());
    body(i + 3 * kLanes, Whole{}, Nth<3>());
  }
  for (; i + kLanes <= n; i += kLanes) body(i, Whole{}, Nth<0>());
  if (i < n) body(i, Part{n - i}, Nth<1>());
}

/// Calls body(i, Whole or Part, Nth<4 or 1>) for every run of 0 .. n: four vectors, or one.
template <class Body>
HWY_INLINE void sweep_by_runs(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) body(i, Whole{}, Nth<4>());
  for (; i + kLanes <= n; i += kLanes) body(i, Whole{}, Nth<1>());
  if (i < n) body(i, Part{n - i}, Nth<1>());
}

/// Copies elements in line: rows and heads are too short for a call to pay.
template <class X>
HWY_INLINE void copy(const X* from, int64_t count, X* to) {
  const hn::ScalableTag<uint8_t> bytes;
  constexpr int64_t kBytes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<uint8_t>()));
  const auto* source = reinterpret_cast<const uint8_t*>(from);
  auto* target = reinterpret_cast<uint8_t*>(to);
  const int64_t n = count * static_cast<int64_t>(sizeof(X));
  int64_t i = 0;
  for (; i + 4 * kBytes <= n; i += 4 * kBytes) {
    const auto a = hn::LoadU(bytes, source + i), b = hn::LoadU(bytes, source + i + kBytes);
    const auto c = hn::LoadU(bytes, source + i + 2 * kBytes), d = hn::LoadU(bytes, source + i + 3 * kBytes);
    hn::StoreU(a, bytes, target + i);
    hn::StoreU(b, bytes, target + i + kBytes);
    hn::StoreU(c, bytes, target + i + 2 * kBytes);
    hn::StoreU(d, bytes, target + i + 3 * kBytes);
  }
  for (; i + kBytes <= n; i += kBytes) hn::StoreU(hn::LoadU(bytes, source + i), bytes, target + i);
  if (i < n) std::memcpy(target + i, source + i, static_cast<size_t>(n - i));
}

/// Four sums side by side, so that additions need not wait for one another. Their order depends on the width of a
/// vector and on nothing else.
struct Sum {
  V v[4];
  HWY_INLINE Sum()
      : v{zero(), zero(), zero(), zero()} {}  // written out: an implied one would be compiled without vectors
  template <int n>
  HWY_INLINE void add(V x, Nth<n>) {
    v[n] = hn::Add(v[n], x);
  }
  template <int n>
  HWY_INLINE void add_product(V x, V y, Nth<n>) {
    v[n] = hn::MulAdd(x, y, v[n]);
  }
  HWY_INLINE float total() const {
    return hn::GetLane(hn::SumOfLanes(Floats(), hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3]))));
  }
};

/// x, but at least `limit`. A NaN stays one: Highway's own prefer the number on NEON.
HWY_INLINE V at_least(V limit, V x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  return hn::Max(limit, x);  // this order keeps a NaN
#else
  return hn::IfThenElse(hn::Lt(x, limit), limit, x);
#endif
}
/// x, but at most `limit`. A NaN stays one.
HWY_INLINE V at_most(V limit, V x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  return hn::Min(limit, x);
#else
  return hn::IfThenElse(hn::Lt(limit, x), limit, x);
#endif
}

/// e^x for x up to 88.7, within 2 units in the last place; 0 from about −104 (−87.3 without AVX-512) down. NaN
/// stays NaN. x = n·ln 2 + r with ln 2 in two parts (Cody and Waite), a polynomial in r (interpolated in
/// Chebyshev's points, relative error 1e-8), times 2ⁿ.
HWY_INLINE V exp_up_to_88(V x) {
#if HWY_TARGET <= HWY_AVX3
  x = at_least(set(-120.0f), x);
#else
  const auto flushed = hn::Lt(x, set(-87.3f));
  x = at_least(set(-87.3f), x);
#endif
  const V rounder = set(0x1.8p23f);
  const V rounded = hn::MulAdd(x, set(1.44269504f), rounder);
  const V n = hn::Sub(rounded, rounder);
  V r = hn::NegMulAdd(n, set(0.693359375f), x);
  r = hn::NegMulAdd(n, set(-2.12194440e-4f), r);
  V y = hn::MulAdd(set(1.39262508e-3f), r, set(8.36323288e-3f));
  y = hn::MulAdd(y, r, set(4.16665542e-2f));
  y = hn::MulAdd(y, r, set(1.66665766e-1f));
  y = hn::MulAdd(y, r, set(0.5f));
  y = hn::MulAdd(y, r, set(1.0f));
  y = hn::MulAdd(y, r, set(1.0f));
#if HWY_TARGET <= HWY_AVX3
  return V{_mm512_scalef_ps(y.raw, n.raw)};
#else
  const hn::RebindToSigned<Floats> integers;
  const auto scaled = hn::Add(hn::BitCast(integers, y), hn::ShiftLeft<23>(hn::BitCast(integers, rounded)));
  return hn::IfThenZeroElse(flushed, hn::BitCast(Floats(), scaled));
#endif
}
/// 1/x for x in [1, 1e38].
HWY_INLINE V reciprocal(V x) {
#if HWY_TARGET <= HWY_AVX3
  // An estimate of 14 bits and one step of Newton: within one unit, at a third of the division's time.
  const V y = hn::ApproximateReciprocal(x);
  return hn::MulAdd(hn::NegMulAdd(x, y, set(1.0f)), y, y);
#else
  return hn::Div(set(1.0f), x);
#endif
}

/// 1/(1 + e^-x), never below e^-87.
HWY_INLINE V sigmoid(V x) { return reciprocal(hn::Add(set(1.0f), exp_up_to_88(at_most(set(87.0f), hn::Neg(x))))); }

/// 1/(1 + e^-x) for results that are rounded to X. For bf16 within 1.4e-4 of itself, a fourteenth of that rounding:
/// 2^t as 2^⌊t⌋ times a cubic (relative error 7.5e-5), and an estimate of the reciprocal (6.1e-5). 0 from x = −89
/// down.
template <class X>
HWY_INLINE V sigmoid_for(V x) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<X, bf16>) {
    constexpr int kDownQuietly = 0x09;  // round towards minus infinity, no precision exception
    const V t = hn::Mul(x, set(-1.44269504f));
    const V f{_mm512_reduce_ps(t.raw, kDownQuietly)};
    V y = hn::MulAdd(set(0.07802452f), f, set(0.22606716f));
    y = hn::MulAdd(y, f, set(0.69583354f));
    y = hn::MulAdd(y, f, set(0.99992522f));
    return hn::ApproximateReciprocal(hn::Add(set(1.0f), V{_mm512_scalef_ps(y.raw, t.raw)}));
  }
#endif
  return sigmoid(x);
}

/// Asks for what a later row will read. Rows are too short for the processor to foresee the next one.
template <class X, int n>
HWY_INLINE void ask_for(const X* p, Nth<n>) {
  constexpr int64_t kVectorsPerLine = 64 / (kLanes * static_cast<int64_t>(sizeof(X)));
  if (kVectorsPerLine <= 1 || n % kVectorsPerLine == 0) __builtin_prefetch(p);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

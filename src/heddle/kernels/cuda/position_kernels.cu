// Rotary positions and MLA's assembly: each element of an output is found from where it lies, eight at a time where
// all widths are multiples of eight.
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/position_kernels.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int kThreads = 256;

/// Element e of x rotated; c and s: r/2 cosines and sines.
template <class X>
HEDDLE_DEVICE float rotated(const X* x, int64_t e, int64_t r, const float* c, const float* s, bool interleaved,
                            bool inverse) {
  const int64_t half = r / 2;
  const bool second = interleaved ? e % 2 == 1 : e >= half;
  const int64_t i = interleaved ? e / 2 : (second ? e - half : e);
  const int64_t other = interleaved ? (second ? e - 1 : e + 1) : (second ? e - half : e + half);
  const float sine = inverse ? -s[i] : s[i];
  return second ? to_float(x[other]) * sine + to_float(x[e]) * c[i]
                : to_float(x[e]) * c[i] - to_float(x[other]) * sine;
}

/// Rotates elements e … e + 8, of which a half has a multiple or which lie interleaved, in 16-byte accesses.
template <class X>
HEDDLE_DEVICE void rotated_pack(const X* x, int e, int r, const float* c, const float* s, bool interleaved,
                                bool inverse, float (&to)[kPack]) {
  float own[kPack], other[kPack];
  load_pack(x + e, kPack, true, own);
  if (interleaved) {
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; i += 2) {
      const float sine = inverse ? -s[(e + i) / 2] : s[(e + i) / 2], cosine = c[(e + i) / 2];
      to[i] = own[i] * cosine - own[i + 1] * sine;
      to[i + 1] = own[i] * sine + own[i + 1] * cosine;
    }
    return;
  }
  const int half = r / 2;
  const bool second = e >= half;
  const int first = second ? e - half : e;
  load_pack(x + (second ? first : e + half), kPack, true, other);
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    const float sine = inverse ? -s[first + i] : s[first + i];
    to[i] = second ? other[i] * sine + own[i] * c[first + i] : own[i] * c[first + i] - other[i] * sine;
  }
}

/// to[0 … count) by eights: value(first, pack, v) gives `pack` elements from `first` on. A token's row is far
/// shorter than 2³¹, and 32 bits divide several times as fast as 64.
template <class X, class Value>
HEDDLE_DEVICE void write_row(X* to, int count, bool by_packs, Value value) {
  if (by_packs) {
    for (int at = static_cast<int>(threadIdx.x) * kPack; at < count; at += kThreads * kPack) {
      float v[kPack];
      value(at, kPack, v);
      store_pack(to + at, kPack, true, v);
    }
    return;
  }
  for (int at = static_cast<int>(threadIdx.x); at < count; at += kThreads) {
    float v[kPack];
    value(at, 1, v);
    to[at] = rounded<X>(v[0]);
  }
}

/// v = from[0 … count), count one or eight and then aligned.
template <class X>
HEDDLE_DEVICE void copy_some(const X* from, int count, float (&v)[kPack]) {
  if (count == kPack) {
    load_pack(from, kPack, true, v);
  } else {
    v[0] = to_float(from[0]);
  }
}

HEDDLE_DEVICE bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kThreads) position(PositionArgs args) {
  HEDDLE_SHARED(float, angle, kWidestRope);
  HEDDLE_SHARED(float, kr, kWidestRope);
  const int64_t t = blockIdx.x;
  const int h = static_cast<int>(args.h), n = static_cast<int>(args.n), r = static_cast<int>(args.r);
  const int v = static_cast<int>(args.v), d = n + r + static_cast<int>(args.behind);
  const bool rotates = args.table_Sr != nullptr;
  // A pack of the rotated part takes its other half from one pack, or lies interleaved with it.
  const bool packs = n % kPack == 0 && r % (args.interleaved ? kPack : 2 * kPack) == 0 && v % kPack == 0 &&
                     d % kPack == 0 && aligned(args.q) && aligned(args.kv) && aligned(args.q_out) &&
                     aligned(args.k) && aligned(args.value);
  const float *c = angle, *s = angle + r / 2;
  for (int64_t i = threadIdx.x; rotates && i < r; i += kThreads) angle[i] = args.table_Sr[t % args.S * r + i];
  __syncthreads();
  if (args.kr != nullptr) {
    const X* from = static_cast<const X*>(args.kr) + t * r;
    for (int64_t i = threadIdx.x; i < r; i += kThreads) {
      kr[i] = rotates ? rotated(from, i, r, c, s, args.interleaved, args.inverse) : to_float(from[i]);
    }
    __syncthreads();
  }
  if (args.q != nullptr) {
    const X* from = static_cast<const X*>(args.q) + t * h * d;
    write_row(static_cast<X*>(args.q_out) + t * h * d, h * d, packs, [&](int at, int count, float(&to)[kPack]) {
      const int in_head = at % d;
      if (in_head < n || in_head >= n + r) {
        copy_some(from + at, count, to);
      } else if (count == kPack) {
        rotated_pack(from + at - in_head + n, in_head - n, r, c, s, args.interleaved, args.inverse, to);
      } else {
        to[0] = rotated(from + at - in_head + n, in_head - n, r, c, s, args.interleaved, args.inverse);
      }
    });
  }
  if (args.kv == nullptr) return;
  const X* kv = static_cast<const X*>(args.kv) + t * h * (n + v);
  write_row(static_cast<X*>(args.k) + t * h * d, h * d, packs, [&](int at, int count, float(&to)[kPack]) {
    const int head = at / d, in_head = at % d;
    if (in_head < n) {
      copy_some(kv + head * (n + v) + in_head, count, to);
    } else {
      for (int i = 0; i < count; ++i) to[i] = kr[in_head - n + i];
    }
  });
  write_row(static_cast<X*>(args.value) + t * h * v, h * v, packs, [&](int at, int count, float(&to)[kPack]) {
    copy_some(kv + at / v * (n + v) + n + at % v, count, to);
  });
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kThreads) position_dgrad(PositionGradArgs args) {
  HEDDLE_SHARED(float, angle, kWidestRope);
  HEDDLE_SHARED(float, sum, kWidestRope);
  const int64_t t = blockIdx.x;
  const int h = static_cast<int>(args.h), n = static_cast<int>(args.n), r = static_cast<int>(args.r);
  const int v = static_cast<int>(args.v), d = n + r;
  const bool packs = n % kPack == 0 && r % kPack == 0 && v % kPack == 0 && aligned(args.dk) &&
                     aligned(args.dvalue) && aligned(args.dkv);
  const X* dk = static_cast<const X*>(args.dk) + t * h * d;
  const X* dvalue = static_cast<const X*>(args.dvalue) + t * h * v;
  for (int64_t i = threadIdx.x; i < r; i += kThreads) {
    if (args.table_Sr != nullptr) angle[i] = args.table_Sr[t % args.S * r + i];
    float total = 0;
    for (int64_t j = 0; j < h; ++j) total += to_float(dk[j * d + n + i]);
    sum[i] = total;
  }
  write_row(static_cast<X*>(args.dkv) + t * h * (n + v), h * (n + v), packs,
            [&](int at, int count, float(&to)[kPack]) {
              const int head = at / (n + v), in_head = at % (n + v);
              copy_some(in_head < n ? dk + head * d + in_head : dvalue + head * v + in_head - n, count, to);
            });
  __syncthreads();
  X* dkr = static_cast<X*>(args.dkr) + t * r;
  for (int64_t i = threadIdx.x; i < r; i += kThreads) {
    dkr[i] = rounded<X>(
        args.table_Sr == nullptr ? sum[i] : rotated(sum, i, r, angle, angle + r / 2, args.interleaved, true));
  }
}

template HEDDLE_KERNEL void position<float>(PositionArgs args);
template HEDDLE_KERNEL void position<Bf16>(PositionArgs args);
template HEDDLE_KERNEL void position_dgrad<float>(PositionGradArgs args);
template HEDDLE_KERNEL void position_dgrad<Bf16>(PositionGradArgs args);

}  // namespace heddle::kernels::cuda

// The language that kernels are written in: CUDA C++ where nvcc compiles them, or plain C++ over an emulator, which
// runs a block's threads as fibers on the CPU (the tests' own: tests/gpu/emulator.h). Kernels use nothing of CUDA
// but what lies here, so that one text is both run on a device and held to `reference` on machines without one.
#pragma once

#include <cstdint>

#include "heddle/kernels/cuda/arguments.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#define HEDDLE_DEVICE __device__ __forceinline__
#define HEDDLE_BOUNDS(threads) __launch_bounds__(threads)
#define HEDDLE_UNROLL _Pragma("unroll")
#define HEDDLE_SHARED(T, name, count) __shared__ T name[count]
#define HEDDLE_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#else
#include HEDDLE_EMULATOR

#define HEDDLE_DEVICE inline
#define HEDDLE_BOUNDS(threads)
#define HEDDLE_UNROLL
#endif

namespace heddle::kernels::cuda {

constexpr Lanes kFullWarp = ~Lanes{0};

// ---- Votes

/// The lanes of this warp that say yes. By all of them.
HEDDLE_DEVICE Lanes vote(bool yes) { return __ballot_sync(kFullWarp, yes); }
HEDDLE_DEVICE int count_of(Lanes lanes) {
  return kWarp == 64 ? __popcll(lanes) : __popc(static_cast<uint32_t>(lanes));
}
HEDDLE_DEVICE Lanes lanes_below(int lane) { return (Lanes{1} << lane) - 1; }

// ---- Numbers

HEDDLE_DEVICE float to_float(float x) { return x; }
HEDDLE_DEVICE float to_float(Bf16 x) {
#ifdef __CUDACC__
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
#else
  return emulator::float_of(static_cast<uint32_t>(x.bits) << 16);
#endif
}
template <class X>
HEDDLE_DEVICE X rounded(float x);
template <>
HEDDLE_DEVICE float rounded<float>(float x) {
  return x;
}
template <>
HEDDLE_DEVICE Bf16 rounded<Bf16>(float x) {
#ifdef __CUDACC__
  return Bf16{__bfloat16_as_ushort(__float2bfloat16_rn(x))};
#else
  return Bf16{emulator::bf16_of(x)};
#endif
}

HEDDLE_DEVICE uint32_t word_of(float x) {
#ifdef __CUDACC__
  return __float_as_uint(x);
#else
  return emulator::word_of(x);
#endif
}
HEDDLE_DEVICE float float_of_word(uint32_t word) {
#ifdef __CUDACC__
  return __uint_as_float(word);
#else
  return emulator::float_of(word);
#endif
}

HEDDLE_DEVICE float not_a_number() {
#ifdef __CUDACC__
  return __int_as_float(0x7fffffff);
#else
  return emulator::float_of(0x7fffffff);
#endif
}

// ---- Memory

/// Checks the address of an access of 16 bytes. The emulator refuses what a device would trap at.
HEDDLE_DEVICE void check_aligned([[maybe_unused]] const void* at) {
#ifndef __CUDACC__
  emulator::check_aligned(at);
#endif
}

// Eight numbers of a row at a time, as 16-byte accesses where the row allows it

constexpr int kPack = 8;

/// True if every row of `width` numbers that starts at `base` is aligned for 16-byte accesses.
template <class X>
HEDDLE_DEVICE bool wide_rows(const void* base, int64_t width) {
  return reinterpret_cast<uintptr_t>(base) % 16 == 0 && width * static_cast<int64_t>(sizeof(X)) % 16 == 0;
}

/// v = from[0 … 8); zeros from `left` on. `wide`: 16-byte accesses are allowed.
template <class X>
HEDDLE_DEVICE void load_pack(const X* from, int64_t left, bool wide, float (&v)[kPack]) {
  if (wide && left >= kPack) {
    check_aligned(from);
    union {
      Quad quad[sizeof(X) / 2];
      X x[kPack];
    } raw;
    HEDDLE_UNROLL
    for (unsigned q = 0; q < sizeof(X) / 2; ++q) raw.quad[q] = reinterpret_cast<const Quad*>(from)[q];
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) v[i] = to_float(raw.x[i]);
    return;
  }
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) v[i] = i < left ? to_float(from[i]) : 0.0f;
}

template <class X>
HEDDLE_DEVICE void store_pack(X* to, int64_t left, bool wide, const float (&v)[kPack]) {
  if (wide && left >= kPack) {
    check_aligned(to);
    union {
      Quad quad[sizeof(X) / 2];
      X x[kPack];
    } raw;
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) raw.x[i] = rounded<X>(v[i]);
    HEDDLE_UNROLL
    for (unsigned q = 0; q < sizeof(X) / 2; ++q) reinterpret_cast<Quad*>(to)[q] = raw.quad[q];
    return;
  }
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    if (i < left) to[i] = rounded<X>(v[i]);
  }
}

// ---- Sums over a warp and a block, in an order that depends on the number of threads only

template <class T>
HEDDLE_DEVICE T warp_sum(T x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kFullWarp, x, step);
  return x;
}
HEDDLE_DEVICE float warp_max(float x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, step));
  return x;
}

/// The sum over the block, for every thread. `board`: shared, one number a warp.
template <class T>
HEDDLE_DEVICE T block_sum(T x, T* of_warps) {
  x = warp_sum(x);
  const int warps = (static_cast<int>(blockDim.x) + kWarp - 1) / kWarp;
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  T sum = of_warps[0];
  for (int w = 1; w < warps; ++w) sum += of_warps[w];
  __syncthreads();
  return sum;
}
HEDDLE_DEVICE float block_max(float x, float* of_warps) {
  x = warp_max(x);
  const int warps = (static_cast<int>(blockDim.x) + kWarp - 1) / kWarp;
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  float most = of_warps[0];
  for (int w = 1; w < warps; ++w) most = fmaxf(most, of_warps[w]);
  __syncthreads();
  return most;
}

/// Counts the threads before this one that say yes, and those of all, of a block of whole warps. `votes`: shared,
/// one number a warp.
HEDDLE_DEVICE int count_before(bool yes, unsigned* votes, int& all) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const Lanes own = vote(yes);
  if (lane == 0) votes[warp] = static_cast<unsigned>(count_of(own));
  __syncthreads();
  int before = count_of(own & lanes_below(lane));
  all = 0;
  for (int w = 0; w < static_cast<int>(blockDim.x) / kWarp; ++w) {
    if (w < warp) before += static_cast<int>(votes[w]);
    all += static_cast<int>(votes[w]);
  }
  __syncthreads();
  return before;
}

}  // namespace heddle::kernels::cuda

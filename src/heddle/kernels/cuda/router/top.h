// The highest scores of a token, one after the other: a warp a token, its scores in shared memory.
#pragma once

#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/router/router_kernels.h"

namespace heddle::kernels::cuda {

/// A warp's memory for its token: two rows of E numbers and E marks.
struct WarpMemory {
  float *a, *b;
  unsigned char* taken;
};
HEDDLE_DEVICE WarpMemory memory_of_warp(unsigned char* shared, int64_t E) {
  float* floats = reinterpret_cast<float*>(shared) + threadIdx.x / kWarp * 2 * E;
  return {floats, floats + E, shared + kRouterWarps * E * 8 + threadIdx.x / kWarp * E};
}

/// True if x at index i comes before the champion: higher, or as high with a lower index; a NaN after all numbers.
HEDDLE_DEVICE bool better(float x, int i, float champion, int at) {
  if (i < 0) return false;
  if (at < 0) return true;
  const bool nan = x != x, champion_nan = champion != champion;
  if (nan != champion_nan) return champion_nan;
  if (!nan && x != champion) return x > champion;
  return i < at;
}

/// The index of the best of values[0 … count) that is not taken, for every lane; −1 if there is none.
HEDDLE_DEVICE int best_open(const float* values, const unsigned char* taken, int count) {
  float best = 0;
  int at = -1;
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < count; i += kWarp) {
    if (taken[i] == 0 && better(values[i], i, best, at)) {
      best = values[i];
      at = i;
    }
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kFullWarp, best, step);
    const int other_at = __shfl_xor_sync(kFullWarp, at, step);
    if (better(other, other_at, best, at)) {
      best = other;
      at = other_at;
    }
  }
  return at;
}

}  // namespace heddle::kernels::cuda

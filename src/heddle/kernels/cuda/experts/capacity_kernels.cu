// Choices of a microbatch that keep a place with their expert. See capacity_kernels.h.
#include "heddle/kernels/cuda/experts/capacity_kernels.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

namespace {

HEDDLE_DEVICE int64_t place() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
HEDDLE_DEVICE int64_t step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

/// The order of floats as the order of unsigned numbers above 0: both zeros alike, every NaN 1, below all else.
HEDDLE_DEVICE uint32_t order_of(float x) {
  if (x != x) return 1;
  const uint32_t word = x == 0 ? 0 : word_of(x);
  return word >> 31 != 0 ? ~word : word | 0x80000000u;
}

constexpr int kCountBits = 21;
constexpr uint64_t kCountMask = (uint64_t{1} << kCountBits) - 1;

/// The highest number that at least C of `order`[first … end) reach, two bits at a time; for every thread.
HEDDLE_DEVICE uint32_t bound_of(const uint32_t* order, int32_t first, int32_t end, int64_t C, uint64_t* of_warps) {
  uint32_t bound = 0;
  for (int shift = 30; shift >= 0; shift -= 2) {
    uint64_t reached = 0;  // of the next digits 1, 2 and 3
    for (int32_t row = first + static_cast<int32_t>(threadIdx.x); row < end; row += kPlaceThreads) {
      const uint32_t own = order[row];
      HEDDLE_UNROLL
      for (uint32_t digit = 1; digit <= 3; ++digit) {
        reached += own >= (bound | digit << shift) ? uint64_t{1} << (digit - 1) * kCountBits : 0;
      }
    }
    reached = block_sum(reached, of_warps);
    for (uint32_t digit = 3; digit >= 1; --digit) {
      if (static_cast<int64_t>(reached >> (digit - 1) * kCountBits & kCountMask) < C) continue;
      bound |= digit << shift;
      break;
    }
  }
  return bound;
}

}  // namespace

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) orders_of_gates(CapacityArgs args) {
  for (int64_t i = place(); i < args.R; i += step()) args.order_R[args.row_of_Tk[i]] = order_of(args.g_Tk[i]);
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kPlaceThreads) places_of_rows(CapacityArgs args) {
  HEDDLE_SHARED(uint64_t, of_warps, kPlaceThreads / kWarp);
  HEDDLE_SHARED(unsigned, votes, kPlaceThreads / kWarp);
  const int64_t e = blockIdx.x, C = args.C;
  const int32_t first = args.offsets[e], end = args.offsets[e + 1];
  uint32_t bound = 0;  // all above it keep a place, and the first `ties` that are equal to it
  int64_t ties = 0;
  if (end - first > C) {
    bound = bound_of(args.order_R, first, end, C, of_warps);
    uint64_t above = 0;
    for (int32_t row = first + static_cast<int32_t>(threadIdx.x); row < end; row += kPlaceThreads) {
      above += args.order_R[row] > bound ? 1 : 0;
    }
    ties = C - static_cast<int64_t>(block_sum(above, of_warps));
  }
  int32_t next = 0, tied = 0;
  for (int32_t from = first; from < end; from += kPlaceThreads) {
    const int32_t row = from + static_cast<int32_t>(threadIdx.x);
    const uint32_t order = row < end ? args.order_R[row] : 0;
    const bool tie = row < end && order == bound;
    int all = 0;
    const int earlier = tied + count_before(tie, votes, all);
    tied += all;
    const bool keeps = row < end && (order > bound || (tie && earlier < ties));
    const int32_t found = next + count_before(keeps, votes, all);
    next += all;
    if (row >= end) continue;
    args.order_R[row] = keeps ? static_cast<uint32_t>(e * C + found) : ~0u;
    if (keeps) args.token_of_EC[e * C + found] = args.token_of_R[row];
  }
  for (int64_t c = next + static_cast<int64_t>(threadIdx.x); c < C; c += kPlaceThreads)
    args.token_of_EC[e * C + c] = -1;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) places_of_slots(CapacityArgs args) {
  for (int64_t i = place(); i < args.R; i += step()) {
    const auto found = static_cast<int32_t>(args.order_R[args.row_of_Tk[i]]);
    args.place_of_Tk[i] = found;
    args.kept_Tk[i] = found < 0 ? 0.0f : args.g_Tk[i];
  }
  for (int64_t p = place(); p <= args.P; p += step()) {
    args.local_offsets[p] = static_cast<int32_t>(p * args.sources * args.C);
  }
  for (int64_t i = place(); i < args.each; i += step()) args.counts[i] = static_cast<int32_t>(args.C);
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) gradients_of_kept(KeptGradArgs args) {
  for (int64_t i = place(); i < args.R; i += step()) args.dg_R[i] = args.place_of_R[i] < 0 ? 0.0f : args.dkept_R[i];
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kDropThreads) count_dropped(DroppedArgs args) {
  HEDDLE_SHARED(int64_t, of_warps, kDropThreads / kWarp);
  int64_t dropped = 0;
  for (int64_t i = threadIdx.x; i < args.R; i += kDropThreads) dropped += args.place_of_R[i] < 0 ? 1 : 0;
  dropped = block_sum(dropped, of_warps);
  if (threadIdx.x == 0) args.sum[0] = static_cast<double>(dropped) + (args.overwrite ? 0.0 : args.sum[0]);
}

}  // namespace heddle::kernels::cuda

// Kernels of collectives for rows between their exchanges. See exchange_kernels.h.
#include "heddle/kernels/cuda/experts/exchange_kernels.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

namespace {

HEDDLE_DEVICE int64_t place() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
HEDDLE_DEVICE int64_t step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

HEDDLE_DEVICE float widened(float x) { return x; }
HEDDLE_DEVICE float widened(Bf16 x) { return to_float(x); }
HEDDLE_DEVICE double widened(double x) { return x; }
template <class X>
HEDDLE_DEVICE X narrowed(float x) {
  return rounded<X>(x);
}
template <class X>
HEDDLE_DEVICE X narrowed(double x) {
  return x;
}

}  // namespace

template <class X, class A>
HEDDLE_KERNEL void HEDDLE_BOUNDS(256) rank_sum(RankSumArgs args) {
  const X* parts = static_cast<const X*>(args.parts);
  for (int64_t i = place(); i < args.count; i += step()) {
    A sum = widened(parts[i]);
    for (int64_t r = 1; r < args.ranks; ++r) sum += widened(parts[r * args.stride + i]);
    static_cast<X*>(args.out)[i] = narrowed<X>(sum);
  }
}

template <class Unit>
HEDDLE_KERNEL void HEDDLE_BOUNDS(256) cut_columns(CutArgs args) {
  const int64_t count = args.ranks * args.rows * args.width;
  for (int64_t i = place(); i < count; i += step()) {
    const int64_t c = i % args.width, row = i / args.width % args.rows, r = i / (args.width * args.rows);
    Unit* whole = static_cast<Unit*>(args.whole) + (row * args.ranks + r) * args.width + c;
    Unit* part = static_cast<Unit*>(args.parts) + i;
    if (args.join) {
      *whole = *part;
    } else {
      *part = *whole;
    }
  }
}

HEDDLE_KERNEL void local_offsets(LocalOffsetsArgs args) {
  if (place() > 0) return;
  int32_t sum = args.offsets[0] = 0;
  for (int64_t e = 0; e < args.P; ++e) {
    for (int64_t s = 0; s < args.G; ++s) sum += args.n_2GP[(args.G + s) * args.P + e];
    args.offsets[e + 1] = sum;
  }
}

template HEDDLE_KERNEL void rank_sum<double, double>(RankSumArgs args);
template HEDDLE_KERNEL void rank_sum<float, float>(RankSumArgs args);
template HEDDLE_KERNEL void rank_sum<Bf16, float>(RankSumArgs args);
template HEDDLE_KERNEL void cut_columns<uint16_t>(CutArgs args);
template HEDDLE_KERNEL void cut_columns<Quad>(CutArgs args);

}  // namespace heddle::kernels::cuda

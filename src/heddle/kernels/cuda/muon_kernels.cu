// See muon_kernels.h. Jordan et al., 2024; Liu et al., arXiv 2502.16982.
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/muon_kernels.h"

namespace heddle::kernels::cuda {

namespace {

HEDDLE_DEVICE int64_t place() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
HEDDLE_DEVICE int64_t step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }
/// The place in the stack of element i of the worked matrices.
HEDDLE_DEVICE int64_t in_stack(const MatricesArgs& a, int64_t i) {
  const int64_t size = a.rows * a.columns, matrix = i / size, at = i % size;
  const bool turned = a.rows > a.columns;
  const int64_t width = turned ? a.rows : a.columns;
  const int64_t row = turned ? at % width : at / width, column = turned ? at / width : at % width;
  return matrix * size + column / a.block * a.rows * a.block + row * a.block + column % a.block;
}
HEDDLE_DEVICE int64_t height(const MatricesArgs& a) { return a.rows > a.columns ? a.columns : a.rows; }
HEDDLE_DEVICE int64_t width(const MatricesArgs& a) { return a.rows > a.columns ? a.rows : a.columns; }

}  // namespace

template <class X>
HEDDLE_KERNEL void muon_momentum(MuonMomentumArgs args) {
  const auto clip = static_cast<float>(args.clip[0]);
  X* u = static_cast<X*>(args.u);
  for (int64_t i = place(); i < args.count; i += step()) {
    if (clip == 0) {
      u[i] = rounded<X>(0.0f);
      continue;
    }
    float sum = static_cast<const float*>(args.acc.of[0])[i];
    for (int use = 1; use < args.acc.count; ++use) sum += static_cast<const float*>(args.acc.of[use])[i];
    const float g = clip * sum, m = args.momentum * args.m[i] + g;
    args.m[i] = m;
    u[i] = rounded<X>(g + args.momentum * m);
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(256) matrix_row_sums(MatricesArgs args) {
  HEDDLE_SHARED(double, of_warps, 256 / kWarp);
  const int64_t across = width(args), first = static_cast<int64_t>(blockIdx.x) * across;
  double sum = 0;
  for (int64_t j = threadIdx.x; j < across; j += 256) {
    const double u = to_float(static_cast<const X*>(args.from)[in_stack(args, first + j)]);
    sum += u * u;
  }
  sum = block_sum(sum, of_warps);
  if (threadIdx.x == 0) args.sums[blockIdx.x] = sum;
}

HEDDLE_KERNEL void matrix_norms(MatricesArgs args) {
  const int64_t k = place(), down = height(args);
  if (k >= args.count) return;
  double sum = 0;
  for (int64_t i = 0; i < down; ++i) sum += args.sums[k * down + i];
  args.sums[k * down] = sqrt(sum) + 1e-7;
}

template <class X>
HEDDLE_KERNEL void unit_matrices(MatricesArgs args) {
  const int64_t size = args.rows * args.columns;
  for (int64_t i = place(); i < args.count * size; i += step()) {
    const auto norm = static_cast<float>(args.sums[i / size * height(args)]);
    static_cast<X*>(args.to)[i] = rounded<X>(to_float(static_cast<const X*>(args.from)[in_stack(args, i)]) / norm);
  }
}

template <class X>
HEDDLE_KERNEL void place_matrices(MatricesArgs args) {
  for (int64_t i = place(); i < args.count * args.rows * args.columns; i += step())
    static_cast<X*>(args.to)[in_stack(args, i)] = static_cast<const X*>(args.from)[i];
}

HEDDLE_KERNEL void even_offsets(EvenOffsetsArgs args) {
  for (int64_t i = place(); i < args.count; i += step()) args.offsets[i] = static_cast<int32_t>(i) * args.rows;
}

template <class X>
HEDDLE_KERNEL void scaled_sum(ScaledSumArgs args) {
  for (int64_t i = place(); i < args.count; i += step()) {
    const float x = to_float(static_cast<const X*>(args.x)[i]), z = to_float(static_cast<const X*>(args.z)[i]);
    static_cast<X*>(args.y)[i] = rounded<X>(args.alpha * x + args.beta * z);
  }
}

// The copy is made of the master even where nothing moves.
template <class X>
HEDDLE_KERNEL void muon_step(MuonStepArgs args) {
  const auto rate = static_cast<float>(args.hyper[0]);
  const bool moves = args.clip[0] != 0;
  for (int64_t i = place(); i < args.count; i += step()) {
    float p = args.p[i];
    if (moves) {
      p -= rate * (args.scale * to_float(static_cast<const X*>(args.o)[i]) + args.decay * p);
      args.p[i] = p;
    }
    if (args.copy != nullptr) static_cast<X*>(args.copy)[i] = rounded<X>(p);
  }
}

#define HEDDLE_MUON(X)                                            \
  template HEDDLE_KERNEL void muon_momentum<X>(MuonMomentumArgs); \
  template HEDDLE_KERNEL void matrix_row_sums<X>(MatricesArgs);   \
  template HEDDLE_KERNEL void unit_matrices<X>(MatricesArgs);     \
  template HEDDLE_KERNEL void place_matrices<X>(MatricesArgs);    \
  template HEDDLE_KERNEL void scaled_sum<X>(ScaledSumArgs);       \
  template HEDDLE_KERNEL void muon_step<X>(MuonStepArgs)
HEDDLE_MUON(float);
HEDDLE_MUON(Bf16);
#undef HEDDLE_MUON

}  // namespace heddle::kernels::cuda

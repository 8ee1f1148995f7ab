// Muon's steps between its products; see ops/muon.cpp.
#pragma once

#include "heddle/kernels/cuda/arguments.h"
#include "heddle/kernels/cuda/step_kernels.h"

namespace heddle::kernels::cuda {

struct MuonMomentumArgs {
  const double* clip;
  Uses acc;
  float* m;
  void* u;
  int64_t count;
  float momentum;
};
template <class X>
HEDDLE_KERNEL void muon_momentum(MuonMomentumArgs args);

/// The places of elements: kernels/matrix_places.h. `sums` has one number a row of the worked matrix, and those of
/// a matrix's first row become its norm.
struct MatricesArgs {
  const void* from;
  void* to;
  double* sums;
  int64_t count, rows, columns, block;
};
/// One block a row.
template <class X>
HEDDLE_KERNEL void matrix_row_sums(MatricesArgs args);
/// One thread a matrix.
HEDDLE_KERNEL void matrix_norms(MatricesArgs args);
template <class X>
HEDDLE_KERNEL void unit_matrices(MatricesArgs args);
template <class X>
HEDDLE_KERNEL void place_matrices(MatricesArgs args);

struct EvenOffsetsArgs {
  int32_t* offsets;
  int64_t count;
  int32_t rows;
};
HEDDLE_KERNEL void even_offsets(EvenOffsetsArgs args);

struct ScaledSumArgs {
  const void *x, *z;
  void* y;
  int64_t count;
  float alpha, beta;
};
template <class X>
HEDDLE_KERNEL void scaled_sum(ScaledSumArgs args);

struct MuonStepArgs {
  const double *clip, *hyper;
  const void* o;
  float* p;
  void* copy;  // of the type of o, or null
  int64_t count;
  float scale, decay;
};
template <class X>
HEDDLE_KERNEL void muon_step(MuonStepArgs args);

}  // namespace heddle::kernels::cuda

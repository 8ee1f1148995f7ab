// Products over the rows of groups of any size, whose offsets lie on the device. By the own kernels.
#pragma once

#include <algorithm>

#include "heddle/kernels/cuda/backend.h"

namespace heddle::kernels::cuda {

/// y's rows first[e] … first[e+1] from those of x, for each of w's experts e. Shapes: w [E, N, K]; forward x [R,
/// K], y [R, N]; backward the other way round.
template <bool backward>
void rows_by(const TensorView& x, const TensorView& w, const int32_t* first, const TensorView& y, void* stream);

/// acc_e (+)= dyᵀ x over the rows first[e] … first[e+1]; acc is [E, N, K], x [R, K], dy [R, N].
void grouped_sums(const TensorView& x, const TensorView& dy, const int32_t* first, int64_t E, float* acc, bool add,
                  void* stream);

/// Makes these sums by CUTLASS where the device and the operands are for it; `scratch` has scratch_of_sums bytes. A
/// build without CUTLASS uses the own kernel.
void sums_by_library(const TensorView& x, const TensorView& dy, const int32_t* first, const TensorView& acc,
                     bool add, std::byte* scratch, void* stream);
int64_t scratch_of_sums(int64_t groups);
/// The scratch of an op that sums so: those of the rank's experts and of copies come one after the other. 0 where
/// it sums over no groups.
inline int64_t scratch_of_sums(const ir::Listing& listing, const ir::Op& op) {
  if (op.updates.empty() || listing.value(op.updates[0]).shape.size() != 3) return 0;
  return scratch_of_sums(
      std::max(listing.value(op.updates[0]).shape[0].count, op.attributes.integer_or("copies", 0)));
}

}  // namespace heddle::kernels::cuda

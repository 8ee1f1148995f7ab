// Requests of the CPU's matrix products to a plan.
#pragma once

#include "heddle/ir/value.h"

namespace heddle::kernels::host {

/// Bytes of a weight in the blocking that the products read, 0 where they read it in rows.
int64_t packed_weight_bytes(const ir::Value& weight);

/// bf16 where products multiply bf16 numbers as such, f32 where they would widen them first.
Dtype fast_dtype();

}  // namespace heddle::kernels::host

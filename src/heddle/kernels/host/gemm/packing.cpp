#include "heddle/kernels/host/gemm/packing.h"

#include "heddle/kernels/host/gemm/gemm.h"

namespace heddle::kernels::host {

int64_t packed_weight_bytes(const ir::Value& weight) {
  if (!gemm_supported(weight.dtype)) return 0;
  const ir::Shape& shape = weight.shape;
  const bool grouped = shape.size() == 3;
  return packed_bytes(weight.dtype, grouped ? shape[0].count : 1, shape[grouped ? 1 : 0].count,
                      shape[grouped ? 2 : 1].count);
}

Dtype fast_dtype() { return multiplies_bf16(best_engine(Dtype::bf16)) ? Dtype::bf16 : Dtype::f32; }

}  // namespace heddle::kernels::host

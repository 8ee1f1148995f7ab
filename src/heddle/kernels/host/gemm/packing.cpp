#include "heddle/kernels/host/gemm/gemm.h"
#include "heddle/kernels/registry.h"

namespace heddle::kernels {

int64_t packed_weight_bytes(std::string_view backend, const ir::Value& weight) {
  if (backend != "host" || !host::gemm_supported(weight.dtype)) return 0;
  const ir::Shape& shape = weight.shape;
  const bool grouped = shape.size() == 3;
  return host::packed_bytes(weight.dtype, grouped ? shape[0].count : 1, shape[grouped ? 1 : 0].count,
                            shape[grouped ? 2 : 1].count);
}

}  // namespace heddle::kernels

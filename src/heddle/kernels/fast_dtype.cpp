#include "heddle/kernels/host/gemm/gemm.h"
#include "heddle/kernels/registry.h"

namespace heddle::kernels {

Dtype fast_dtype(std::string_view backend) {
  if (backend == "cuda") return Dtype::bf16;
  return backend == "host" && host::multiplies_bf16(host::best_engine(Dtype::bf16)) ? Dtype::bf16 : Dtype::f32;
}

}  // namespace heddle::kernels

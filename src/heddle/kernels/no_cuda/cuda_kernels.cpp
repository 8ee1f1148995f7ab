// A build without CUDA lists no kernels of it.
#include "heddle/kernels/registry.h"

namespace heddle::kernels {

const std::vector<KernelEntry>& cuda_kernels() {
  static const std::vector<KernelEntry> none;
  return none;
}

const device::RowWork* cuda_row_work() { return nullptr; }

}  // namespace heddle::kernels

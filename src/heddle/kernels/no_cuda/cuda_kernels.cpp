// A build without CUDA lists no kernels of it.
#include "heddle/kernels/registry.h"

namespace heddle::kernels {

const std::vector<KernelEntry>& cuda_kernels() {
  static const std::vector<KernelEntry> none;
  return none;
}

VendorLibrary cuda_product_library() { return {false, "a build without CUDA"}; }
VendorLibrary cuda_attention_library() { return {false, "a build without CUDA"}; }

void try_cuda_kernels() {}
std::string cuda_expert_kernels() { return "a build without CUDA"; }
bool cuda_turns_weights() { return false; }

const device::RowWork* cuda_row_work() { return nullptr; }

}  // namespace heddle::kernels

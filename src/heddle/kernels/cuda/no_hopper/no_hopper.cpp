// A build for other devices, and the emulator, have no kernels of Hopper's own.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/fp8.h"

namespace heddle::kernels::cuda {

std::vector<KernelEntry> hopper_fp8_entries() { return {}; }
bool hopper_grouped_rows(const ProductArgs&, bool, void*) { return false; }

}  // namespace heddle::kernels::cuda

namespace heddle::kernels {

void try_cuda_kernels() {}
std::string cuda_expert_kernels() { return "own kernels"; }
bool cuda_turns_weights() { return false; }

}  // namespace heddle::kernels

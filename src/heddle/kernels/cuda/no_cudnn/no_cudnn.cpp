// A build without the headers of cuDNN or of its frontend: the own kernels attend.
#include "heddle/device/vendor.h"
#include "heddle/kernels/cuda/backend.h"

namespace heddle::kernels::cuda {

std::vector<KernelEntry> library_attention_entries() { return {}; }

}  // namespace heddle::kernels::cuda

namespace heddle::kernels {
VendorLibrary cuda_attention_library() {
  return {false, device::unused_text(device::LibraryUse::attention, "the headers of cuDNN and its frontend",
                                     "the own kernels attend")};
}
}  // namespace heddle::kernels

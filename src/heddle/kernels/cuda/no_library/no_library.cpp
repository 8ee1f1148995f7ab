// Without a vendor's library (a build without its header; the emulator) every product is the kernel's.
#include "heddle/device/vendor.h"
#include "heddle/kernels/cuda/backend.h"

namespace heddle::kernels::cuda {

int64_t product_workspace_bytes() { return 0; }
bool library_multiply(const ProductCall&, void*, void*) { return false; }

}  // namespace heddle::kernels::cuda

namespace heddle::kernels {
VendorLibrary cuda_product_library() {
  return {false, device::unused_text(device::LibraryUse::products, "its header", "the own kernels multiply")};
}
}  // namespace heddle::kernels

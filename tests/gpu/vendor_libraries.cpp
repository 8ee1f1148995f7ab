// What a build for one vendor opens on this machine: a line for each library. Compiled for each vendor
// (vendor_libraries_test.py).
#include <fmt/format.h>

#include "heddle/comm/nccl/library.h"
#include "heddle/device/vendor.h"
#ifdef HEDDLE_TEST_PRODUCTS
#include "heddle/kernels/cuda/cublaslt/library.h"
#else
#include "heddle/kernels/registry.h"
#endif

int main() {
  using namespace heddle;
  const comm::nccl::Library& messages = comm::nccl::library();
  fmt::print("messages: {}\n", messages.missing.empty() ? messages.text : messages.missing);
#ifdef HEDDLE_TEST_PRODUCTS
  fmt::print("products: {}\n", kernels::cuda::open_cublaslt().text);
#else
  fmt::print("products: {}\n", kernels::cuda_product_library().text);
#endif
  for (const device::LibraryUse use :
       {device::LibraryUse::products, device::LibraryUse::messages, device::LibraryUse::attention}) {
    const device::LibraryNames& names = device::library_names(use);
    fmt::print("row: {} {} {}\n", static_cast<int>(names.use), names.vendor == device::kVendor ? "own" : "other",
               names.name);
  }
  return 0;
}

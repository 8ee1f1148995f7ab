// The kernels that exist for an op kind, fastest first. The backends that list them are in backends/backend.h.
//
// A backend lists its kernels; `reference` (plain loops, fixed order, fp32 or fp64 sums) is the specification and
// is listed for every op. A kernel answers whether it supports an op as it stands, or why not.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/device/kernel_call.h"
#include "heddle/device/row_work.h"
#include "heddle/ir/listing.h"

namespace heddle::kernels {

struct KernelEntry {
  std::string_view op_kind;
  std::string_view backend;  // that lists it
  std::string_view name;     // e.g. "amx", "highway", "loops"
  /// Null means yes.
  Support (*supports)(const ir::Listing& listing, const ir::Op& op) = nullptr;
  /// Bytes of scratch that a call with these row counts needs. Null means none.
  int64_t (*scratch_bytes)(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) = nullptr;
  device::Kernel run = nullptr;
  /// The engine it runs on here for this op, e.g. "avx512", where a kernel has a choice. Null: there is none.
  std::string_view (*engine)(const ir::Listing& listing, const ir::Op& op) = nullptr;
};

/// The kernels of a backend. A build without the backend has an empty list.
const std::vector<KernelEntry>& reference_kernels();
const std::vector<KernelEntry>& host_kernels();
const std::vector<KernelEntry>& cuda_kernels();

/// A vendor's library: its version and file, or why there is none.
struct VendorLibrary {
  bool there = false;
  std::string text;
};
/// Libraries that multiply matrices and attend on CUDA devices.
VendorLibrary cuda_product_library();
VendorLibrary cuda_attention_library();

/// Tries the kernels that only some CUDA devices have on the device in use, some milliseconds once a device. It
/// uses those that agree with the kernels for every device.
void try_cuda_kernels();
/// The kernels that multiply experts' rows on the device in use, and why others are left out: "wgmma, CUTLASS".
std::string cuda_expert_kernels();
/// True if the device in use multiplies in eight bits by a kernel that reads a rounded weight turned for the input
/// gradient.
bool cuda_turns_weights();

/// The cuda backend's part of collectives; null in a build without it.
const device::RowWork* cuda_row_work();

}  // namespace heddle::kernels

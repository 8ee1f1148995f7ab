// Which kernels exist for an op kind, fastest first.
//
// A backend lists its kernels; `reference` (plain loops, fixed order, fp32 or fp64 sums) is the specification and
// is listed for every op. A kernel answers whether it supports an op as it stands, or why not.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/device/kernel_call.h"
#include "heddle/device/row_work.h"
#include "heddle/ir/stage.h"

namespace heddle::kernels {

struct KernelEntry {
  std::string_view op_kind;
  std::string_view backend;  // "reference", "host", "cuda"
  std::string_view name;     // e.g. "amx", "onednn", "highway", "loops"
  /// Null means yes.
  Support (*supports)(const ir::Stage& stage, const ir::Op& op) = nullptr;
  /// Bytes of scratch that a call with these row counts needs. Null means none.
  int64_t (*scratch_bytes)(const ir::Stage& stage, const ir::Op& op, const ir::RowCounts& rows) = nullptr;
  device::Kernel run = nullptr;
  /// What it runs on here for this op, e.g. "avx512", where a kernel has a choice. Null: there is none.
  std::string_view (*engine)(const ir::Stage& stage, const ir::Op& op) = nullptr;
};

/// The kernels of a backend. A build without the backend has an empty list.
const std::vector<KernelEntry>& reference_kernels();
const std::vector<KernelEntry>& host_kernels();
const std::vector<KernelEntry>& cuda_kernels();

/// The cuda backend's part of collectives; null in a build without it.
const device::RowWork* cuda_row_work();

/// The first kernel of `backend`, then of reference (which can't take the place of cuda's: it reads host memory),
/// that supports the op. InternalError when none does; the
/// message lists each refusal. `refusals`, if given, receives "name: reason" of each kernel passed over.
const KernelEntry& select_kernel(std::string_view backend, const ir::Stage& stage, const ir::Op& op,
                                 std::vector<std::string>* refusals = nullptr);

/// The element type that the backend trains in fastest on this machine: bf16 where its matrix products multiply
/// bf16 numbers as such, f32 where they would widen them first.
Dtype fast_dtype(std::string_view backend);

/// Bytes of a weight in the backend's packed form, 0 when the backend reads it in rows.
int64_t packed_weight_bytes(std::string_view backend, const ir::Value& weight);

}  // namespace heddle::kernels

// The kernels of the communication ops, written over a Communicator. See docs/ops.md.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/device/kernel_call.h"
#include "heddle/ir/listing.h"

namespace heddle::comm {

struct Collective {
  std::string_view kind;
  device::Kernel run = nullptr;
  /// As kernels::KernelEntry. Null means none.
  int64_t (*scratch_bytes)(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) = nullptr;
};

/// The kernels of all communication ops: on memory of the host, and on that of a device. A call has the RowWork of
/// that memory.
const std::vector<Collective>& host_collectives();
const std::vector<Collective>& device_collectives();
/// Null where `kind` is none of them.
const Collective* find_collective(const std::vector<Collective>& of, std::string_view kind);
/// Collectives of rows and of tensors cut into shards.
const std::vector<Collective>& row_collectives();

/// Collectives of products in one with the gather or the sum of their rows.
const std::vector<Collective>& product_collectives();

/// Collectives of the places of experts that take a stated number of rows.
const std::vector<Collective>& place_collectives();

/// Collectives of matrices dealt out to ranks.
const std::vector<Collective>& matrix_collectives();

inline std::byte* bytes_of(const device::TensorView& view) { return static_cast<std::byte*>(view.data); }

/// Rows that this rank receives, from the n of counts_to_host.
int64_t received_rows(const device::TensorView& n);
/// The rows that an output of counts_to_host counts: 0 for one that counts none.
int64_t counted_rows(size_t output, const device::TensorView& view);

}  // namespace heddle::comm

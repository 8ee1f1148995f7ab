// Backends that can run a program: the CPU's kernels, a CUDA device's, and the plain loops that specify both. A
// backend is a row of one table; whoever runs, plans or measures asks the row and never compares names.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/comm/collectives.h"
#include "heddle/device/device.h"
#include "heddle/kernels/registry.h"
#include "heddle/plan/plan.h"

namespace heddle::backends {

/// The product that an op of ir::OpDef::by_pieces runs on some rows at a time, with the kernel that it has here.
struct InnerProduct {
  ir::Op op;
  const kernels::KernelEntry* kernel = nullptr;
};

struct Backend {
  std::string_view name;  // as device.backend has it
  /// True if its kernels read memory of the host. Ops that it has no kernel for then run on the reference's.
  bool shares_memory;
  /// Fastest first for each kind of op; empty in a build without the backend.
  const std::vector<kernels::KernelEntry>& (*kernels)();
  /// Kernels, likewise, of ops that the host's processor runs (ir::runs_on_host), rounded as the device rounds.
  const std::vector<kernels::KernelEntry>& (*on_host)();
  /// The communication ops, on the memory of its device.
  const std::vector<comm::Collective>& (*collectives)();
  /// Its part of these: what is done with rows between messages.
  const device::RowWork* (*row_work)();
  /// Bytes of a weight in its packed form, 0 where it reads the weight in rows.
  int64_t (*packed_bytes)(const ir::Value& weight);
  /// True if its products in eight bits read a rounded weight turned for the input gradient. Null: they do not.
  bool (*turns_weights)() = nullptr;
  /// The element type that it trains in fastest on this machine: bf16 where its matrix products multiply bf16
  /// numbers as such, f32 where they would widen them first.
  Dtype (*usual_dtype)();
  /// Its device for a rank. ConfigError, in one line, where there is none.
  std::unique_ptr<device::Device> (*open)(const device::Seat& seat);
  /// Says if this build and machine have such a device, or why not.
  Support (*available)();
  plan::DeviceRates rates;  // nominal

  /// The communication op's, or null where `kind` is none.
  const comm::Collective* find_collective(std::string_view kind) const;
  /// The first kernel that supports the op. ConfigError in a build without the backend, or with each refusal when
  /// none does. `refusals`, if given, receives "name: reason" of each kernel passed over.
  const kernels::KernelEntry& select_kernel(const ir::Listing& listing, const ir::Op& op,
                                            std::vector<std::string>* refusals = nullptr) const;
  /// Null where the op runs no product. Errors as select_kernel's.
  std::unique_ptr<InnerProduct> inner_product(const ir::Listing& listing, const ir::Op& op) const;
};

/// The place of the product's scratch in that of the op, behind `bytes` of its own; and how much both have.
int64_t scratch_of_product(int64_t bytes);
int64_t scratch_with_product(const InnerProduct& product, const ir::Listing& listing, const ir::RowCounts& rows,
                             int64_t bytes);

/// The first is the usual one.
const std::vector<Backend>& all();
/// InternalError where there is none of that name: configurations are checked before.
const Backend& named(std::string_view name);

}  // namespace heddle::backends

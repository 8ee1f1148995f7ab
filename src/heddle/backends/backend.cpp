#include "heddle/backends/backend.h"

#include <algorithm>

#include "heddle/base/crash_note.h"
#include "heddle/comm/host/row_work.h"
#include "heddle/kernels/host/gemm/packing.h"
#include "heddle/kernels/rows_in_all.h"
#include "heddle/ops/ops.h"

namespace heddle::backends {

const std::vector<Backend>& all() {
  static const std::vector<Backend> rows{
      {.name = "host",
       .shares_memory = true,
       .kernels = kernels::host_kernels,
       .on_host = kernels::host_kernels,
       .collectives = comm::host_collectives,
       .row_work = comm::host_row_work,
       .packed_bytes = kernels::host::packed_weight_bytes,
       .usual_dtype = kernels::host::fast_dtype,
       .open = [](const device::Seat&) { return device::host_device(); },
       .available = Support::yes},
      {.name = "reference",
       .shares_memory = true,
       .kernels = kernels::reference_kernels,
       .on_host = kernels::reference_kernels,
       .collectives = comm::host_collectives,
       .row_work = comm::host_row_work,
       .packed_bytes = [](const ir::Value&) { return int64_t{0}; },
       .usual_dtype = [] { return Dtype::f32; },
       .open = [](const device::Seat&) { return device::host_device(); },
       .available = Support::yes},
      {.name = "cuda",
       .shares_memory = false,
       .kernels = kernels::cuda_kernels,
       .on_host = kernels::host_kernels,
       .collectives = comm::device_collectives,
       .row_work = kernels::cuda_row_work,
       .packed_bytes = [](const ir::Value&) { return int64_t{0}; },
       .turns_weights = kernels::cuda_turns_weights,
       .usual_dtype = [] { return Dtype::bf16; },
       .open =
           [](const device::Seat& seat) {
             auto device = device::cuda_device(seat);
             kernels::try_cuda_kernels();
             return device;
           },
       .available = device::cuda_available,
       .rates =
           {.flops_per_us = 400e6, .bytes_per_us = 3e6, .host_bytes_per_us = 25e3, .ways = {.same_bits = false}}},
  };
  return rows;
}

const Backend& named(std::string_view name) {
  const auto at = std::find_if(all().begin(), all().end(), [&](const Backend& b) { return b.name == name; });
  HEDDLE_CHECK(at != all().end(), "no backend '{}'", name);
  return *at;
}

const comm::Collective* Backend::find_collective(std::string_view kind) const {
  return comm::find_collective(collectives(), kind);
}

const kernels::KernelEntry& Backend::select_kernel(const ir::Listing& listing, const ir::Op& op,
                                                   std::vector<std::string>* refusals) const {
  if (kernels().empty()) {
    config_error("device.backend is \"{}\": {}", name, available().reason);
  }
  const auto own = ir::runs_on_host(op) ? on_host : kernels;
  std::vector<const std::vector<kernels::KernelEntry>*> lists{&own()};
  const bool falls_back = (shares_memory || ir::runs_on_host(op)) && own != kernels::reference_kernels;
  if (falls_back) lists.push_back(&kernels::reference_kernels());
  std::string passed_over;
  for (const auto* list : lists) {
    for (const kernels::KernelEntry& kernel : *list) {
      if (kernel.op_kind != op.kind()) continue;
      const CrashNote note("asking the kernel", kernel.name, op.kind());
      const Support support = kernel.supports ? kernel.supports(listing, op) : Support::yes();
      if (support) return kernel;
      std::string refusal = fmt::format("{}.{}: {}", kernel.backend, kernel.name, support.reason);
      passed_over += (passed_over.empty() ? "" : "; ") + refusal;
      if (refusals) refusals->push_back(std::move(refusal));
    }
  }
  const std::string what =
      fmt::format("no kernel of '{}'{} runs op '{}'", name, falls_back ? " or reference" : "", op.kind());
  if (passed_over.empty()) internal_error("{}: none is listed", what);
  config_error("device.backend is \"{}\": {}: {}", name, what, passed_over);
}

std::unique_ptr<InnerProduct> Backend::inner_product(const ir::Listing& listing, const ir::Op& op) const {
  if (!op.def->by_pieces) return nullptr;
  auto product = std::make_unique<InnerProduct>();
  product->op = ops::product_in(op);
  const auto rows = [&](ir::ValueId id) { return listing.value(id).shape[0].count; };
  product->op.attributes.set(std::string(kernels::kRowsInAll), std::max(rows(op.in[0]), rows(op.out[0])));
  product->kernel = &select_kernel(listing, product->op);
  return product;
}

int64_t scratch_of_product(int64_t bytes) {
  constexpr int64_t kAligned = 64;
  return (bytes + kAligned - 1) / kAligned * kAligned;
}

int64_t scratch_with_product(const InnerProduct& product, const ir::Listing& listing, const ir::RowCounts& rows,
                             int64_t bytes) {
  const auto scratch = product.kernel->scratch_bytes;
  return scratch == nullptr ? bytes : scratch_of_product(bytes) + scratch(listing, product.op, rows);
}

}  // namespace heddle::backends

// Entries of load, from the host into a value on the device, and of shift_ids.
#include "heddle/device/host_copies.h"
#include "heddle/ir/axes.h"
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/step_kernels.h"

namespace heddle::kernels::cuda {

namespace {

/// Ops whose host part reads the value find it on the host (HostCopies).
void load(const KernelCall& call) {
  HEDDLE_CHECK(call.input != nullptr, "op '{}' runs without inputs", call.op->kind());
  const TensorView& value = call.out[0];
  upload(value.data, call.input, value.elements() * size_of(value.dtype), call.stream);
  device::HostCopies::keep(call, value, call.input);
}

void shift(const KernelCall& call) {
  const auto size = static_cast<int32_t>(call.op->attributes.integer("size"));
  HEDDLE_CHECK(call.place != nullptr, "op '{}' runs without a place in the mesh", call.op->kind());
  const int64_t count = call.in[0].elements();
  launch(shift_ids, {.blocks_x = blocks_for(count, 256)},
         {numbers<const int32_t>(call.in[0]), numbers<int32_t>(call.out[0]), count,
          size * call.place->at(ir::Axis::tp), size, static_cast<int32_t>(call.op->attributes.integer("outside"))},
         call.stream);
}

Support always(const ir::Listing&, const ir::Op&) { return Support::yes(); }

}  // namespace

std::vector<KernelEntry> load_entries() {
  return {entry("load", "upload", load, always), entry("shift_ids", "flat", shift, always)};
}

}  // namespace heddle::kernels::cuda

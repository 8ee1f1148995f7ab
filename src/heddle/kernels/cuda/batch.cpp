// Entries of load_tokens, load_weights, load_references, load_starts, load_positions, load_dropout, load_scales,
// load_step, load_limits, load_places, shift_ids: from the batch of the step, which the host has, into values on the
// device.
#include "heddle/device/batch.h"

#include "heddle/ir/axes.h"
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/step_kernels.h"

namespace heddle::kernels::cuda {

namespace {

/// Runs the reference kernel into memory of the host, and sends what it made.
void by_reference(const KernelCall& call) {
  std::vector<std::vector<std::byte>> made;
  std::vector<TensorView> out(call.out.begin(), call.out.end());
  for (TensorView& view : out) {
    made.emplace_back(static_cast<size_t>(view.elements() * size_of(view.dtype)));
    view.data = made.back().data();
  }
  KernelCall on_host = call;
  on_host.out = out;
  for (const KernelEntry& kernel : reference_kernels()) {
    if (kernel.op_kind == call.op->kind()) kernel.run(on_host);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    upload(call.out[i].data, out[i].data, std::ssize(made[i]), call.stream);
  }
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

std::vector<KernelEntry> batch_entries() {
  return {entry("load_tokens", "upload", by_reference, always),
          entry("load_weights", "upload", by_reference, always),
          entry("load_references", "upload", by_reference, always),
          entry("load_starts", "upload", by_reference, always),
          entry("load_positions", "upload", by_reference, always),
          entry("load_dropout", "upload", by_reference, always),
          entry("load_scales", "upload", by_reference, always),
          entry("load_step", "upload", by_reference, always),
          entry("load_limits", "upload", by_reference, always),
          entry("load_places", "upload", by_reference, always),
          entry("shift_ids", "flat", shift, always)};
}

}  // namespace heddle::kernels::cuda

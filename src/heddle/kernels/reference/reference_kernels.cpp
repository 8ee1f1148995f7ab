// The list of reference kernels: one for every op that computes.
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels {
namespace reference {
namespace {

Support reads_rows(const ir::Listing& listing, const ir::Op& op) {
  for (const auto* list : {&op.in, &op.out, &op.updates}) {
    for (const ir::ValueId id : *list) {
      if (id != ir::none && listing.value(id).layout == ir::Layout::packed) {
        return Support::no("reference reads and writes row-major weights");
      }
    }
  }
  return Support::yes();
}

}  // namespace

KernelEntry entry(std::string_view kind, device::Kernel run) {
  return {.op_kind = kind, .backend = "reference", .name = "loops", .supports = reads_rows, .run = run};
}

}  // namespace reference

const std::vector<KernelEntry>& reference_kernels() {
  static const std::vector<KernelEntry> all = [] {
    using namespace reference;
    std::vector<KernelEntry> list;
    for (auto* family : {load_kernels,         embedding_kernels,   linear_kernels,    norm_kernels,
                         dropout_kernels,      shape_kernels,       position_kernels,  attention_kernels,
                         cache_kernels,        mlp_kernels,         router_kernels,    router_loss_kernels,
                         expert_kernels,       expert_bias_kernels, capacity_kernels,  balance_kernels,
                         loss_kernels,         preference_kernels,  optimizer_kernels, muon_kernels,
                         exact_kernels,        copy_kernels,        fp8_kernels,       selection_kernels,
                         recurrence_kernels,   convolution_kernels, qk_clip_kernels,   hyper_connection_kernels,
                         gated_stream_kernels, compression_kernels}) {
      for (KernelEntry& kernel : family()) list.push_back(kernel);
    }
    return list;
  }();
  return all;
}

}  // namespace heddle::kernels

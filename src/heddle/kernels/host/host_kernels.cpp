// The list of CPU kernels, fastest first for each op kind: a family of kernels joins by appending its own list
// here.
#include "heddle/kernels/host/attention/attention.h"
#include "heddle/kernels/host/cpu_features.h"
#include "heddle/kernels/host/fp8.h"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/linear_operands.h"

namespace heddle::kernels {

const std::vector<KernelEntry>& host_kernels() {
  static const std::vector<KernelEntry> all = [] {
    host::mask_highway();
    std::vector<KernelEntry> list = host::attention_kernels();
    for (auto* family : {host::linear_kernels,
                         host::grouped_linear_kernels,
                         host::fp8_kernels,
                         host::norm_kernels,
                         host::layer_norm_kernels,
                         host::hyper_connection_kernels,
                         host::gated_stream_kernels,
                         host::dropout_kernels,
                         host::mlp_kernels,
                         host::gate_kernels,
                         host::clamped_swiglu_kernels,
                         host::expert_bias_kernels,
                         host::capacity_kernels,
                         host::margin_kernels,
                         host::shape_kernels,
                         host::rope_kernels,
                         host::cache_kernels,
                         host::selection_kernels,
                         host::recurrence_bf16_kernels,
                         host::recurrence_kernels,
                         host::convolution_kernels,
                         host::permute_kernels,
                         host::embedding_kernels,
                         host::router_kernels,
                         host::router_loss_kernels,
                         host::loss_kernels,
                         host::linear_cross_entropy_kernels,
                         host::compression_kernels,
                         host::optimizer_kernels,
                         host::muon_kernels}) {
      for (KernelEntry& kernel : family()) list.push_back(kernel);
    }
    return list;
  }();
  return all;
}

}  // namespace heddle::kernels

// The list of the cuda backend.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/fp8.h"

namespace heddle::kernels {

const std::vector<KernelEntry>& cuda_kernels() {
  static const std::vector<KernelEntry> all = [] {
    std::vector<KernelEntry> list;
    for (auto* family : {cuda::load_entries,         cuda::map_entries,
                         cuda::norm_entries,         cuda::layer_norm_entries,
                         cuda::dropout_entries,      cuda::position_entries,
                         cuda::row_entries,          cuda::expert_bias_entries,
                         cuda::router_entries,       cuda::capacity_entries,
                         cuda::balance_entries,      cuda::loss_entries,
                         cuda::cutlass_entries,      cuda::piece_entries,
                         cuda::linear_entries,       cuda::expert_way_entries,
                         cuda::fp8_entries,          cuda::library_attention_entries,
                         cuda::attention_entries,    cuda::cache_entries,
                         cuda::selection_entries,    cuda::qk_clip_entries,
                         cuda::recurrence_entries,   cuda::step_entries,
                         cuda::muon_entries,         cuda::hyper_connection_entries,
                         cuda::gated_stream_entries, cuda::compression_entries}) {
      for (KernelEntry& kernel : family()) list.push_back(kernel);
    }
    return list;
  }();
  return all;
}

const device::RowWork* cuda_row_work() { return cuda::row_work(); }

}  // namespace heddle::kernels

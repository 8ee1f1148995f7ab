// What the cuda backend has no kernels for yet: entries that say so, in words of the configuration.
#include "heddle/kernels/cuda/backend.h"

namespace heddle::kernels::cuda {

namespace {

Support no_capacity(const ir::Listing&, const ir::Op&) {
  return Support::no("experts have no capacity here: moe.capacity_factor = 0 goes with it");
}
Support no_quantiles(const ir::Listing&, const ir::Op&) {
  return Support::no("biases do not go to quantiles here: model.bias_balance = \"sign\" or \"falling\" does");
}

}  // namespace

std::vector<KernelEntry> refused_entries() {
  return {entry("apply_capacity", "none", nullptr, no_capacity),
          entry("apply_capacity_dgrad", "none", nullptr, no_capacity),
          entry("count_dropped", "none", nullptr, no_capacity),
          entry("count_margins", "none", nullptr, no_quantiles),
          entry("quantile_bias_update", "none", nullptr, no_quantiles)};
}

}  // namespace heddle::kernels::cuda

// The list of CPU kernels, fastest first for each op kind: a family of kernels joins by appending its own list
// here.
#include "heddle/kernels/host/attention.h"
#include "heddle/kernels/host/linear_operands.h"
#include "heddle/kernels/registry.h"

namespace heddle::kernels {

const std::vector<KernelEntry>& host_kernels() {
  static const std::vector<KernelEntry> all = [] {
    std::vector<KernelEntry> list;
    for (auto* family : {host::linear_kernels, host::grouped_linear_kernels}) {
      for (KernelEntry& kernel : family()) list.push_back(kernel);
    }
    for (const KernelEntry& kernel : host::attention_kernels()) list.push_back(kernel);
    return list;
  }();
  return all;
}

}  // namespace heddle::kernels

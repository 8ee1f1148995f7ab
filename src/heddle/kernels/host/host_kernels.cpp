// The list of CPU kernels, fastest first for each op kind: a family of kernels joins by appending its own list here.
#include "heddle/kernels/registry.h"

namespace heddle::kernels {

const std::vector<KernelEntry>& host_kernels() {
  static const std::vector<KernelEntry> all;
  return all;
}

}  // namespace heddle::kernels

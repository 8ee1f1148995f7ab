// Products of operands in eight bits on the CPU. See fp8.cpp.
#pragma once

#include <vector>

#include "heddle/kernels/registry.h"

namespace heddle::kernels::host {

std::vector<KernelEntry> fp8_kernels();

}  // namespace heddle::kernels::host

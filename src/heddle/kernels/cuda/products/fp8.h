// Entries of products whose operands are rounded to eight bits. See fp8.cpp.
#pragma once

#include <vector>

#include "heddle/kernels/registry.h"

namespace heddle::kernels::cuda {

std::vector<KernelEntry> fp8_entries();

}  // namespace heddle::kernels::cuda

// Plans of attention (kernels/cuda/cudnn/plan.h) of the tests' own, on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/kernels/cuda/cudnn/plan.h"

namespace heddle::plans {

struct Plans {
  bool wanted = false;  // false: there is no library
  int64_t most_score_bytes = int64_t{1} << 30;
  std::vector<kernels::cuda::AttentionShape> ran;  // a call each
};
Plans& plans();

}  // namespace heddle::plans

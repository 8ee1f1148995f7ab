// The sizes of a layer of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434).
#pragma once

#include <cstdint>

#include "heddle/ir/attributes.h"

namespace heddle::kernels {

/// h heads, each with n elements without rope and r with it, and values of v.
struct MlaSizes {
  explicit MlaSizes(const ir::Attributes& at)
      : h(at.integer("heads")), n(at.integer("nope")), r(at.integer("rope")), v(at.integer("value_dim")) {}
  int64_t h, n, r, v;
};

}  // namespace heddle::kernels

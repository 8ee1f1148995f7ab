// Inputs for programs whose ops compute nothing: zeros for all that a listing takes.
#pragma once

#include <vector>

#include "heddle/device/inputs.h"

namespace heddle::bench {

/// Zeros for every input of a step of all the program's microbatches.
inline device::Inputs blank_inputs(const ir::Listing& listing) {
  device::Inputs inputs;
  for (const ir::Input& input : listing.inputs) {
    const auto count = static_cast<size_t>(input.elements());
    switch (input.dtype) {
      case Dtype::f64: inputs.set(input.name, std::vector<double>(count)); break;
      case Dtype::f32: inputs.set(input.name, std::vector<float>(count)); break;
      default: inputs.set(input.name, std::vector<int32_t>(count));
    }
  }
  return inputs;
}

}  // namespace heddle::bench

// A whole tensor of the model in memory that others own: global layer, all experts, whatever the layout of ranks.
// Checkpoints, import and export deal in these, so that any layout resumes from any other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/dtype.h"
#include "heddle/device/kernel_call.h"

namespace heddle::formats {

struct LogicalTensor {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  /// Its bytes, row-major, in one piece or in several that follow each other (the experts of one rank after those
  /// of the rank before). A piece ends where an element ends.
  std::vector<std::span<uint8_t>> pieces;

  int64_t elements() const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }
  int64_t size_bytes() const { return elements() * size_of(dtype); }
};

/// A tensor that lies whole in one arena.
inline LogicalTensor logical_tensor(std::string name, const device::TensorView& view) {
  const auto bytes = static_cast<size_t>(view.elements() * size_of(view.dtype));
  return {std::move(name),
          view.dtype,
          {view.dims.begin(), view.dims.begin() + view.rank},
          {{static_cast<uint8_t*>(view.data), bytes}}};
}

}  // namespace heddle::formats

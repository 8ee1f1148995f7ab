// Released tensors as their family's files hold them: some turned, some made of several of ours.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "heddle/config/families/family.h"
#include "heddle/train/released_model.h"

namespace heddle::train {

struct ReleasedTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool turned = false;  // see config::Spelling
  std::vector<ReleasedSlice> parts;
};

/// The shape of the tensor that holds one of shape `shape`.
std::vector<int64_t> shape_in(const config::Spelling& spelling, std::vector<int64_t> shape);

/// In the order of their first parts. InternalError where parts are missing or differ in shape.
std::vector<ReleasedTensor> released_tensors(const std::vector<ReleasedSlice>& slices,
                                             const config::Family& family);

/// Elements of a parameter that stand in a tensor one after the other, or a stride apart.
struct Stretch {
  const ReleasedSlice* slice = nullptr;
  int64_t first = 0, count = 0;  // of the parameter
  int64_t at = 0, stride = 1;    // in the tensor, from its row `first_row` on
};
/// All that rows first_row … first_row + rows − 1 of a turned tensor are made of.
void for_each_stretch(const ReleasedTensor& tensor, int64_t first_row, int64_t rows,
                      const std::function<void(const Stretch&)>& body);

}  // namespace heddle::train

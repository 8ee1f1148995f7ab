#include "heddle/train/released/layout.h"

#include <algorithm>
#include <map>

#include "heddle/base/error.h"

namespace heddle::train {

std::vector<int64_t> shape_in(const config::Spelling& spelling, std::vector<int64_t> shape) {
  if (!shape.empty()) shape[0] *= spelling.parts;
  if (spelling.turned) std::reverse(shape.begin(), shape.end());
  return shape;
}

std::vector<ReleasedTensor> released_tensors(const std::vector<ReleasedSlice>& slices,
                                             const config::Family& family) {
  std::vector<ReleasedTensor> tensors;
  std::map<std::string, size_t> by_name;
  std::vector<size_t> missing;  // parts of each
  for (const ReleasedSlice& slice : slices) {
    const config::Spelling spelling = config::spelling_in(family, slice.name);
    HEDDLE_CHECK(!spelling.turned || slice.shape.size() == 2, "'{}' is turned and no matrix", slice.name);
    const auto [at, fresh] = by_name.try_emplace(spelling.name, tensors.size());
    if (fresh) {
      tensors.push_back({spelling.name, shape_in(spelling, slice.shape), spelling.turned,
                         std::vector<ReleasedSlice>(static_cast<size_t>(spelling.parts))});
      missing.push_back(static_cast<size_t>(spelling.parts));
    }
    ReleasedTensor& tensor = tensors[at->second];
    HEDDLE_CHECK(tensor.shape == shape_in(spelling, slice.shape), "parts of '{}' differ in shape", tensor.name);
    ReleasedSlice& part = tensor.parts.at(static_cast<size_t>(spelling.part));
    HEDDLE_CHECK(part.name.empty(), "'{}' and '{}' are the same part of '{}'", part.name, slice.name, tensor.name);
    part = slice;
    --missing[at->second];
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    HEDDLE_CHECK(missing[i] == 0, "{} parts of '{}' are missing", missing[i], tensors[i].name);
  return tensors;
}

void for_each_stretch(const ReleasedTensor& tensor, int64_t first_row, int64_t rows,
                      const std::function<void(const Stretch&)>& body) {
  const int64_t K = tensor.shape[0], columns = tensor.shape[1];
  int64_t column = 0;
  for (const ReleasedSlice& slice : tensor.parts) {
    for (int64_t n = 0; n < slice.shape[0]; ++n, ++column)
      body({&slice, slice.first + n * K + first_row, rows, column, columns});
  }
}

}  // namespace heddle::train

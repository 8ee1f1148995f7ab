// The place of a parameter's elements in a released folder's tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::config {

/// The place of a tensor's elements in a family's folder: rows and columns of a larger one, or all of it.
struct ReleasedPlace {
  std::string name;
  std::vector<int64_t> shape;  // of the tensor of that name
  int64_t first = 0, row_step = 1, column_step = 1;
  bool is_whole = true;
  bool operator==(const ReleasedPlace&) const = default;

  /// The place of an element of a matrix (or vector, which is one row) of so many columns.
  int64_t at(int64_t element, int64_t columns) const {
    return first + element / columns * row_step + element % columns * column_step;
  }
};

/// The place of a layer's queries, keys or values in one matrix of the three: `first` of `rows`. rows 0: unknown.
struct JoinedRows {
  int64_t first = 0, rows = 0;
};

}  // namespace heddle::config

// The places of a matrix's elements. In a stack: blocks of columns one after the other, each in rows. In the worked
// matrix: in rows, turned where it is higher than wide.
#pragma once

#include <algorithm>
#include <cstdint>

#include "heddle/ir/attributes.h"

namespace heddle::kernels {

/// Added to the norm of a matrix by which it is divided.
constexpr double kLeastMatrixNorm = 1e-7;

struct MatrixPlaces {
  explicit MatrixPlaces(const ir::Attributes& at)
      : count(at.integer("count")),
        rows(at.integer("rows")),
        columns(at.integer("columns")),
        block(columns / at.integer("blocks")) {}
  int64_t size() const { return rows * columns; }
  bool turned() const { return rows > columns; }
  int64_t height() const { return std::min(rows, columns); }  // of what is worked on
  int64_t width() const { return std::max(rows, columns); }
  /// The place in the stack's matrix of element (i, j) of the worked matrix.
  int64_t of(int64_t i, int64_t j) const {
    const int64_t row = turned() ? j : i, column = turned() ? i : j;
    return column / block * rows * block + row * block + column % block;
  }
  int64_t of(int64_t element) const { return of(element / width(), element % width()); }
  int64_t count, rows, columns, block;
};

}  // namespace heddle::kernels

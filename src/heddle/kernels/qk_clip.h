// This header holds what the kernels of QK-clip share on all backends (ops/qk_clip.cpp).
#pragma once

#include <cmath>

#include "heddle/device/kernel_call.h"

namespace heddle::kernels {

/// The number by which a rank finds its row among those of a group: no two ranks of a job have the same.
inline double mark_of(const ir::Coordinates* place) {
  if (place == nullptr) return 0;
  int64_t mark = 0;
  for (const ir::Axis axis : {ir::Axis::pp, ir::Axis::dp, ir::Axis::cp, ir::Axis::tp})
    mark = mark * place->of(axis) + place->at(axis);
  return static_cast<double>(mark);
}

/// The first of this rank's heads in `most`: where they go by heads, each of so many neighbours of cp has its part.
inline int64_t first_head(const ir::Op& op, const ir::Coordinates* place) {
  const int64_t parts = op.attributes.integer_or("head_parts", 1);
  if (parts == 1 || place == nullptr) return 0;
  return place->at(ir::Axis::cp) % parts * op.attributes.integer("heads");
}

/// A power of a head's factor; the powers are 0, 0.5 and 1, so that every backend makes the same bits of it.
inline double power_of(double factor, double power) {
  return power == 0 ? 1 : power == 1 ? factor : std::sqrt(factor);
}

/// How the rows of a weight follow the factors of the heads.
struct ScaledRows {
  explicit ScaledRows(const ir::Op& op)
      : heads(op.attributes.integer("heads")),
        rows(op.attributes.integer("rows")),
        first(op.attributes.integer("first")),
        columns(op.attributes.integer("columns")),
        above(op.attributes.number("above")),
        first_power(op.attributes.number("first_power")),
        rest_power(op.attributes.number("rest_power")) {}
  int64_t heads, rows, first, columns;
  double above, first_power, rest_power;
};

}  // namespace heddle::kernels

// Sizes, documents and slopes, as kernels of recurrences (ops/recurrence.cpp) read them from an op.
#pragma once

#include <cmath>

#include "heddle/device/kernel_call.h"
#include "heddle/kernels/seen_keys.h"

namespace heddle::kernels {

/// The slope of head j of `heads` (ALiBi, arXiv 2108.12409): 2^(−8(j+1)/heads) where that is a power of two, else
/// those of the power of two below it, then every other one of the next.
inline double slope_of(int64_t j, int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  if (j < power) return std::exp2(-8.0 * static_cast<double>(j + 1) / static_cast<double>(power));
  return std::exp2(-8.0 * static_cast<double>(2 * (j - power) + 1) / static_cast<double>(2 * power));
}

/// The first of this rank's heads, of which all ranks of tp, and within each the parts of cp, have equally many.
inline int64_t first_head(const ir::Op& op, const ir::Coordinates* place, int64_t heads, int64_t all) {
  if (heads == all) return 0;
  HEDDLE_CHECK(place != nullptr, "'{}' runs without a place in the mesh", op.kind());
  const int64_t tp = place->of(ir::Axis::tp), parts = all / heads / tp;
  return (place->at(ir::Axis::tp) * parts + (parts > 1 ? place->at(ir::Axis::cp) : 0)) * heads;
}

/// The first row of this rank's part of a weight of `parts` parts, one a rank of cp, of `rows` each.
inline int64_t first_of_part(const ir::Op& op, const ir::Coordinates* place, int64_t rows) {
  if (op.attributes.integer_or("parts", 1) == 1) return 0;
  HEDDLE_CHECK(place != nullptr, "'{}' runs without a place in the mesh", op.kind());
  return place->at(ir::Axis::cp) * rows;
}

struct RecurSizes {
  explicit RecurSizes(const ir::Op& op)
      : h(op.attributes.integer("heads")),
        hk(op.attributes.integer("key_heads")),
        dk(op.attributes.integer("head_dim")),
        dv(op.attributes.integer("value_dim")),
        S(op.attributes.integer("sequence")),
        group(h / hk),
        ranks(op.attributes.integer_or("ranks", 1)),
        all_heads((h + ranks - 1) / ranks * ranks),
        delta(op.attributes.integer("delta") != 0),
        sigmoid(op.attributes.integer_or("sigmoid", 0) != 0),
        top(static_cast<double>(op.attributes.integer_or("sigmoid", 1))),
        normed(op.attributes.has("epsilon")),
        goes_on(ir::place_of("states", op.def->operands) >= 0 && op.operand("states") != ir::none),
        scale(op.attributes.number("scale")),
        epsilon(op.attributes.number_or("epsilon", 0)) {}
  int64_t h, hk, dk, dv, S;
  int64_t group;             // value heads of a key head
  int64_t ranks, all_heads;  // that share sequences; heads of a state, the ones beyond h zeros
  bool delta, sigmoid;
  double top;  // the factor on the sigmoid
  bool normed;
  bool goes_on;  // sequences begin with states that are given
  double scale, epsilon;
};

/// The number of this rank's c-th piece of a sequence that `ranks` of cp share.
inline int64_t piece_of(const device::KernelCall& call, int64_t ranks, int64_t c) {
  if (ranks == 1) return c;
  HEDDLE_CHECK(call.place != nullptr, "'{}' runs without a place in the mesh", call.op->kind());
  const int64_t i = call.place->at(ir::Axis::cp);
  return c == 0 ? i : 2 * ranks - 1 - i;
}

/// The constant log decay of this rank's head j; 0 where the op has no slopes.
inline double slope_decay(const ir::Op& op, const ir::Coordinates* place, int64_t j) {
  if (!op.attributes.has("slopes")) return 0;
  const int64_t all = op.attributes.integer("slope_heads"), heads = op.attributes.integer("heads");
  return -op.attributes.number("slopes") * slope_of(first_head(op, place, heads, all) + j, all);
}

/// True if a document, or a sequence of S rows, begins with the row. `starts`: as SeenKeys has them. A sequence
/// that goes on from a state begins where a document does.
inline bool begins(const int32_t* starts, int64_t row, int64_t S, bool goes_on = false) {
  if (starts != nullptr && starts[row] == row % S) return true;
  return row % S == 0 && !goes_on;
}

}  // namespace heddle::kernels

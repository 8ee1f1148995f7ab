// Which keys a row of queries sees, where a sequence is whole and where it is cut among the ranks of cp.
//
// S is the length of the whole sequence. A rank of cp has Sq = S ÷ cp query rows of it, at the positions of
// ir::position. The key rows are the whole sequence in order (`attention`), or the share of the rank `turn` places
// before this one in the ring (`attention_part`). In both, keys stand in the order of their positions: what a query
// may see is always a prefix.
#pragma once

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/device/kernel_call.h"

namespace heddle::kernels {

struct SeenKeys {
  explicit SeenKeys(const ir::Op& op, const ir::Coordinates* place)
      : length(op.attributes.integer("sequence")),
        cp(static_cast<int>(op.attributes.integer_or("cp", 1))),
        index(place == nullptr ? 0 : place->at(ir::Axis::cp)),
        owner(op.attributes.has("turn") ? static_cast<int>((index + cp - op.attributes.integer("turn")) % cp)
                                        : kAll),
        causal(op.attributes.integer("causal") != 0) {
    HEDDLE_CHECK(cp == (place == nullptr ? 1 : place->of(ir::Axis::cp)) || cp == 1,
                 "'{}' of cp {} on a mesh of cp {}", op.kind(), cp, place == nullptr ? 1 : place->of(ir::Axis::cp));
  }

  int64_t queries() const { return length / cp; }
  int64_t keys() const { return owner == kAll ? length : length / cp; }
  /// Query row i of a sequence sees the key rows [0, seen(i)) of it.
  int64_t seen(int64_t i) const {
    if (!causal) return keys();
    const int64_t last = ir::position(i, length, index, cp);
    if (owner == kAll || cp == 1) return last + 1;
    const int64_t chunk = length / (2 * cp);
    const auto of_chunk = [&](int64_t c) { return std::clamp<int64_t>(last + 1 - c * chunk, 0, chunk); };
    return of_chunk(owner) + of_chunk(2 * cp - 1 - owner);
  }

  static constexpr int kAll = -1;
  int64_t length;
  int cp, index;  // of the queries
  int owner;      // the rank of cp whose keys these are, or kAll
  bool causal;
};

}  // namespace heddle::kernels

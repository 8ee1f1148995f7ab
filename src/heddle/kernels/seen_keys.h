// The keys that a row of queries sees, where a sequence is whole and where it is cut among the ranks of cp.
//
// S is the length of the whole sequence. A rank of cp has Sq = S ÷ cp query rows of it, at the positions of
// ir::position. An op may have a smaller cp than the mesh. Then a run of neighbours has the rows of one rank of
// that cp, and each rank other heads. The key rows are the whole sequence in order (`attention`), or the share of
// the rank ir::owner_in_turn (`attention_part`). In both, keys stand in the order of their positions: what a query
// may see is always one run of them, which a later query's neither begins nor ends before.
#pragma once

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/device/kernel_call.h"

namespace heddle::kernels {

/// The operand of that name, or a null view where it is absent.
inline device::TensorView named_operand(const device::KernelCall& call, std::string_view name) {
  const int at = ir::place_of(name, call.op->def->operands);
  return at < 0 || at >= static_cast<int>(call.in.size()) ? device::TensorView{} : call.in[at];
}

/// The place of a rank among `cp` runs of neighbours, all ranks of the axis together.
inline int run_of_neighbours(const ir::Coordinates& place, int64_t cp) {
  return static_cast<int>(place.at(ir::Axis::cp) * cp / place.of(ir::Axis::cp));
}

/// The first of this rank's heads among those that the op has sinks of: where they go by heads, each of so many
/// neighbours of cp has its part.
inline int64_t first_sink(const ir::Op& op, const ir::Coordinates* place) {
  const int64_t parts = op.attributes.integer_or("sink_parts", 1);
  if (parts == 1) return 0;
  HEDDLE_CHECK(place != nullptr, "'{}' runs without a place in the mesh", op.kind());
  return place->at(ir::Axis::cp) % parts * op.attributes.integer("heads");
}

struct SeenKeys {
  /// `starts`: of each position of each sequence, the first that it may see; null: the first of all.
  explicit SeenKeys(const ir::Op& op, const ir::Coordinates* place, const int32_t* starts = nullptr)
      : length(op.attributes.integer("sequence")),
        cp(static_cast<int>(op.attributes.integer_or("cp", 1))),
        index(place == nullptr ? 0 : run_of_neighbours(*place, cp)),
        inner(op.attributes.integer_or("inner", 1)),
        owner(op.attributes.has("turn") ? owner_in(op.attributes.integer("turn")) : kAll),
        causal(op.attributes.integer("causal") != 0),
        window(op.attributes.integer_or("window", 0)),
        starts(starts) {
    HEDDLE_CHECK((place == nullptr ? 1 : place->of(ir::Axis::cp)) % cp == 0, "'{}' of cp {} on a mesh of cp {}",
                 op.kind(), cp, place == nullptr ? 1 : place->of(ir::Axis::cp));
  }

  int owner_in(int64_t turn) const { return ir::owner_in_turn(index, turn, cp, inner); }
  int64_t queries() const { return length / cp; }
  int64_t keys() const { return owner == kAll ? length : length / cp; }
  /// Query row i of sequence b sees the key rows [first(b, i), seen(i)) of it; none where they end before they
  /// begin.
  int64_t seen(int64_t i) const { return causal ? keys_before(ir::position(i, length, index, cp) + 1) : keys(); }
  int64_t first(int64_t b, int64_t i) const {
    if (!has_first()) return 0;
    const int64_t own = ir::position(i, length, index, cp);
    int64_t position = window > 0 ? std::max<int64_t>(0, own + 1 - window) : 0;
    if (starts != nullptr) position = std::max<int64_t>(position, starts[b * length + own]);
    return keys_before(position);
  }
  /// True if keys before a query's own may be out of its sight.
  bool has_first() const { return window > 0 || starts != nullptr; }
  /// Key rows that stand before the position.
  int64_t keys_before(int64_t position) const {
    if (owner == kAll || cp == 1) return position;
    const int64_t chunk = length / (2 * cp);
    const auto of_chunk = [&](int64_t c) { return std::clamp<int64_t>(position - c * chunk, 0, chunk); };
    return of_chunk(owner) + of_chunk(2 * cp - 1 - owner);
  }

  /// The position of a key row in the whole sequence.
  int64_t key_position(int64_t n) const { return owner == kAll ? n : ir::position(n, length, owner, cp); }

  static constexpr int kAll = -1;
  int64_t length;
  int cp, index;  // of the queries
  int64_t inner;  // ranks of an inner ring
  int owner;      // the rank of cp whose keys these are, or kAll
  bool causal;
  int64_t window;  // 0: none
  const int32_t* starts;
};

}  // namespace heddle::kernels

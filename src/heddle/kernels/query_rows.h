// The sequence and position of each row of queries, where keys are those of whole sequences or the rows of a cache
// (ops/selection.cpp).
//
// S is the length of a sequence. A rank of cp has S ÷ cp positions of it, those of ir::position. A rank of tp has
// its part of these, in order. With places a query stands at places[t] = sequence·S + position, or nowhere where
// that is negative, and then sees nothing.
//
// A sequence has `keys` rows of keys: its positions, unless the op says otherwise. Where these are entries of
// `rate` tokens each, a query sees those that end up to its own position, in its document (ops/compression.cpp).
#pragma once

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/device/kernel_call.h"
#include "heddle/kernels/seen_keys.h"

namespace heddle::kernels {

struct QueryRows {
  explicit QueryRows(const device::KernelCall& call)
      : S(call.op->attributes.integer("sequence")),
        keys(call.op->attributes.integer_or("keys", S)),
        rate(call.op->attributes.integer_or("rate", 1)),
        cp(static_cast<int>(call.op->attributes.integer_or("cp", 1))),
        tp(static_cast<int>(call.op->attributes.integer_or("tp", 1))),
        own(S / (cp * tp)),
        cp_index(cp > 1 ? place_of(call).at(ir::Axis::cp) : 0),
        tp_index(tp > 1 ? place_of(call).at(ir::Axis::tp) : 0),
        starts(named_operand(call, "starts").as<const int32_t>()),
        places(named_operand(call, "places").as<const int32_t>()) {}

  /// The first of the keys of the query's sequence.
  int64_t base(int64_t t) const { return sequence_of(t) * keys; }
  int64_t sequence_of(int64_t t) const { return places == nullptr ? t / own : std::max(places[t], 0) / S; }
  /// The positions of its sequence up to the query's own, and the first of them in its document.
  int64_t positions(int64_t t) const {
    if (places != nullptr) return places[t] < 0 ? 0 : places[t] % S + 1;
    return ir::position(tp_index * own + t % own, S, cp_index, cp) + 1;
  }
  int64_t start(int64_t t) const {
    if (starts == nullptr) return 0;
    const int64_t end = positions(t);
    return std::clamp<int64_t>(starts[sequence_of(t) * S + end - 1], 0, end);
  }
  /// Query t sees the keys [first, seen) of its sequence.
  int64_t seen(int64_t t) const { return positions(t) / rate; }
  int64_t first(int64_t t) const { return std::min(start(t) / rate, seen(t)); }

  int64_t S, keys, rate;
  int cp, tp;
  int64_t own;  // rows of this rank of each sequence
  int cp_index, tp_index;
  const int32_t *starts, *places;

 private:
  static const ir::Coordinates& place_of(const device::KernelCall& call) {
    HEDDLE_CHECK(call.place != nullptr, "'{}' runs without a place in the mesh", call.op->kind());
    return *call.place;
  }
};

/// The keys that each query reads, by their positions: those in `chosen`, or without it all that it sees. `chosen`
/// holds keys, or blocks of `block` keys; then a query reads those that it sees, and with `tail` the keys behind
/// its last whole block. Key heads have a list each, or one for all. With a block and without `chosen` it reads
/// whole blocks alone.
///
/// A list has slots in increasing position. Those from `begin` to `end` hold a key that the query reads.
struct ChosenKeys {
  explicit ChosenKeys(const device::KernelCall& call)
      : rows(call),
        view(named_operand(call, "chosen")),
        lists(call.op->attributes.integer_or("lists", 1)),
        columns(view ? view.dim(1) / lists : 0),
        block(call.op->attributes.integer_or("block", 0)),
        tail(call.op->attributes.integer_or("tail", 0) != 0) {}

  /// So many slots has a list at most.
  int64_t most() const {
    if (!view) return rows.keys;
    return block == 0 ? columns : columns * block + (tail ? block - 1 : 0);
  }

  struct List {
    int64_t position(int64_t slot) const {
      if (chosen == nullptr) return slot;
      if (block == 0) return chosen[slot];
      return slot < tail_slot ? chosen[slot / block] * block + slot % block : tail_at + slot - tail_slot;
    }
    /// The first slot that holds a key at this position or behind it; `end` where none does.
    int64_t first_from(int64_t n) const {
      int64_t low = begin, high = end;
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        position(middle) < n ? low = middle + 1 : high = middle;
      }
      return low;
    }
    const int32_t* chosen;
    int64_t block, begin, end, tail_slot, tail_at;
  };
  List of(int64_t t, int64_t list_index) const {
    if (!view) {
      const int64_t seen = rows.seen(t), end = block == 0 ? seen : seen / block * block;
      return {nullptr, block, std::min(rows.first(t), end), end, 0, 0};
    }
    const int32_t* row = view.as<const int32_t>() + t * view.dim(1) + (lists > 1 ? list_index * columns : 0);
    const int64_t count = std::find_if(row, row + columns, [](int32_t n) { return n < 0; }) - row;
    List list{row, block, 0, count, count * block, 0};
    if (block == 0) return list;
    const int64_t seen = rows.positions(t);
    list.tail_at = seen / block * block;
    list.end = tail                                          ? list.tail_slot + seen % block
               : count > 0 && row[count - 1] == seen / block ? list.tail_slot - (block - seen % block)
                                                             : list.tail_slot;
    if (list.end > 0) list.begin = std::clamp<int64_t>(rows.start(t) - list.position(0), 0, list.end);
    return list;
  }

  QueryRows rows;
  device::TensorView view;
  int64_t lists, columns, block;
  bool tail;
};

/// The columns of `attention_share`, `width` slots of a list each: one, or with of_blocks those of a block.
struct ShareColumns {
  explicit ShareColumns(const device::KernelCall& call)
      : keys(call),
        width(call.op->attributes.integer_or("of_blocks", 0) != 0 ? keys.block : 1),
        of_list(call.out[0].dim(1) / keys.lists),
        heads(call.op->attributes.integer("heads") / keys.lists) {}
  ChosenKeys keys;
  int64_t width, of_list, heads;  // columns and heads of a list
};

/// Writes row t of `list_keys`: the positions of its window, the entries that it sees, and −1 behind them.
inline void list_row(const QueryRows& rows, const device::KernelCall& call, int64_t t) {
  const device::TensorView chosen = named_operand(call, "chosen");
  const int64_t columns = call.out[0].dim(1), end = rows.positions(t);
  int32_t* keys = call.out[0].as<int32_t>() + t * columns;
  int64_t count = 0;
  for (int64_t n = std::max(rows.start(t), end - call.op->attributes.integer("window")); n < end; ++n)
    keys[count++] = static_cast<int32_t>(n);
  if (chosen) {
    const int32_t* row = chosen.as<const int32_t>() + t * chosen.dim(1);
    for (int64_t j = 0; j < chosen.dim(1) && row[j] >= 0; ++j)
      keys[count++] = static_cast<int32_t>(rows.S + row[j]);
  } else {
    for (int64_t n = rows.first(t); n < rows.seen(t); ++n) keys[count++] = static_cast<int32_t>(rows.S + n);
  }
  std::fill(keys + count, keys + columns, -1);
}

}  // namespace heddle::kernels

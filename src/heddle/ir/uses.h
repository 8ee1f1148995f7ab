// The writers and readers of each value of a listing, as the ops stand now. Passes that change the list make a new
// one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/ir/listing.h"

namespace heddle::ir {

class Uses {
 public:
  explicit Uses(const Listing& listing);

  /// The op that has the value among its outputs, the last one where several write it or parts of it, or null. For
  /// a persistent value null.
  const Op* writer(ValueId id) const { return writer_[id] < 0 ? nullptr : &op(writer_index(id)); }
  /// Its index in the listing's list, or -1.
  int writer_index(ValueId id) const { return writer_[id]; }
  /// Indices of the ops that read the value, or a part that overlaps with it, in list order; one that reads it
  /// twice is there twice.
  std::span<const int> readers(ValueId id) const { return of(readers_, id); }
  /// Indices of the ops that mention it.
  std::span<const int> mentions(ValueId id) const { return of(mentions_, id); }
  /// Indices of the ops that update it.
  std::span<const int> updaters(ValueId id) const { return of(updaters_, id); }

  const Op& op(int index) const { return listing_.ops[index]; }
  /// The op that reads the value first, or null.
  const Op* first_reader(ValueId id) const { return readers(id).empty() ? nullptr : &op(readers(id)[0]); }

 private:
  using Lists = std::vector<std::vector<int>>;  // by value
  void note(Lists& lists, const std::vector<ValueId>& ids, int op);
  static std::span<const int> of(const Lists& lists, ValueId id) { return lists[id]; }

  const Listing& listing_;
  std::vector<int> writer_;
  std::vector<std::vector<ValueId>> overlapping_;  // by value that is a part or has parts: the others
  Lists readers_, mentions_, updaters_;
};

}  // namespace heddle::ir

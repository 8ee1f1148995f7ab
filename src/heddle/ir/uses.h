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
  std::span<const int> readers(ValueId id) const { return readers_.of(id); }
  /// Indices of the ops that mention it.
  std::span<const int> mentions(ValueId id) const { return mentions_.of(id); }
  /// Indices of the ops that update it.
  std::span<const int> updaters(ValueId id) const { return updaters_.of(id); }

  const Op& op(int index) const { return listing_.ops[index]; }
  /// The op that reads the value first, or null.
  const Op* first_reader(ValueId id) const { return readers(id).empty() ? nullptr : &op(readers(id)[0]); }

 private:
  /// Ops by value, one value's behind another's: a list of its own for each would be asked for too often.
  struct Lists {
    std::vector<uint32_t> begins;  // [value], and the end
    std::vector<int> ops;
    std::span<const int> of(ValueId id) const {
      const auto v = static_cast<size_t>(id);
      return {ops.data() + begins[v], begins[v + 1] - begins[v]};
    }
  };
  Lists lists_of(std::vector<ValueId> Op::*ids) const;

  const Listing& listing_;
  std::vector<int> writer_;
  std::vector<std::vector<ValueId>> overlapping_;  // by value that is a part or has parts: the others
  Lists readers_, mentions_, updaters_;
};

}  // namespace heddle::ir

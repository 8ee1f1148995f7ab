// The offsets that cut rows into groups of equal size by what the listing alone says.
#pragma once

#include <set>

#include "heddle/ir/listing.h"

namespace heddle::ir {

/// All such offsets, for callers that ask of many ops.
inline std::set<ValueId> equal_groups(const Listing& listing) {
  std::set<ValueId> found;
  for (const Op& op : listing.ops) {
    if (!op.def->equal_groups.empty()) found.insert(op.result(op.def->equal_groups));
  }
  return found;
}

/// True if the op that writes the offsets states that its groups are equal (OpDef::equal_groups).
inline bool groups_are_equal(const Listing& listing, ValueId offsets) {
  for (const Op& op : listing.ops) {
    if (!op.def->equal_groups.empty() && op.result(op.def->equal_groups) == offsets) return true;
  }
  return false;
}

}  // namespace heddle::ir

// Which offsets cut rows into groups of equal size by what the text alone says.
#pragma once

#include "heddle/ir/listing.h"

namespace heddle::ir {

/// Whether the op that writes the offsets states that its groups are equal (OpDef::equal_groups).
inline bool groups_are_equal(const Listing& listing, ValueId offsets) {
  for (const Op& op : listing.ops) {
    if (!op.def->equal_groups.empty() && op.result(op.def->equal_groups) == offsets) return true;
  }
  return false;
}

}  // namespace heddle::ir

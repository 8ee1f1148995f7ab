#include "heddle/ir/uses.h"

#include <map>

namespace heddle::ir {

Uses::Uses(const Listing& listing)
    : listing_(listing),
      writer_(listing.values.size(), -1),
      overlapping_(listing.values.size()),
      readers_(listing.values.size()),
      mentions_(listing.values.size()),
      updaters_(listing.values.size()) {
  std::map<ValueId, std::vector<ValueId>> of_base;
  for (ValueId id = 0; id < std::ssize(listing.values); ++id) {
    if (listing.value(id).part_of != none)
      of_base.try_emplace(listing.base(id), 1, listing.base(id)).first->second.push_back(id);
  }
  for (const auto& [base, values] : of_base) {
    for (const ValueId id : values) {
      for (const ValueId other : values) {
        if (other != id && listing.overlap(id, other)) overlapping_[id].push_back(other);
      }
    }
  }
  for (int i = 0; i < std::ssize(listing.ops); ++i) {
    const Op& op = listing.ops[i];
    note(readers_, op.in, i);
    note(mentions_, op.mentions, i);
    note(updaters_, op.updates, i);
    for (const ValueId id : op.out) {
      writer_[id] = i;
      for (const ValueId other : overlapping_[id]) writer_[other] = i;
    }
  }
}

void Uses::note(Lists& lists, const std::vector<ValueId>& ids, int op) {
  for (const ValueId id : ids) {
    if (id == none) continue;
    lists[id].push_back(op);
    for (const ValueId other : overlapping_[id]) lists[other].push_back(op);
  }
}

}  // namespace heddle::ir

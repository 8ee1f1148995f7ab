#include "heddle/ir/uses.h"

#include <map>
#include <numeric>

namespace heddle::ir {

Uses::Uses(const Listing& listing)
    : listing_(listing), writer_(listing.values.size(), -1), overlapping_(listing.values.size()) {
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
    for (const ValueId id : op.out) {
      writer_[id] = i;
      for (const ValueId other : overlapping_[id]) writer_[other] = i;
    }
  }
  readers_ = lists_of(&Op::in);
  mentions_ = lists_of(&Op::mentions);
  updaters_ = lists_of(&Op::updates);
}

Uses::Lists Uses::lists_of(std::vector<ValueId> Op::*ids) const {
  const auto each = [&](const auto& visit) {
    for (int i = 0; i < std::ssize(listing_.ops); ++i) {
      for (const ValueId id : listing_.ops[i].*ids) {
        if (id == none) continue;
        visit(static_cast<size_t>(id), i);
        for (const ValueId other : overlapping_[id]) visit(static_cast<size_t>(other), i);
      }
    }
  };
  Lists lists;
  lists.begins.assign(listing_.values.size() + 1, 0);
  each([&](size_t value, int) { ++lists.begins[value + 1]; });
  std::partial_sum(lists.begins.begin(), lists.begins.end(), lists.begins.begin());
  lists.ops.resize(lists.begins.back());
  std::vector<uint32_t> next(lists.begins.begin(), lists.begins.end() - 1);
  each([&](size_t value, int op) { lists.ops[next[value]++] = op; });
  return lists;
}

}  // namespace heddle::ir

#include "heddle/ir/uses.h"

#include <map>

namespace heddle::ir {

Uses::Uses(const Stage& stage)
    : stage_(stage),
      writer_(stage.values.size(), -1),
      overlapping_(stage.values.size()),
      readers_(stage.values.size()),
      mentions_(stage.values.size()),
      updaters_(stage.values.size()) {
  std::map<ValueId, std::vector<ValueId>> of_base;
  for (ValueId id = 0; id < std::ssize(stage.values); ++id) {
    if (stage.value(id).part_of != none)
      of_base.try_emplace(stage.base(id), 1, stage.base(id)).first->second.push_back(id);
  }
  for (const auto& [base, values] : of_base) {
    for (const ValueId id : values) {
      for (const ValueId other : values) {
        if (other != id && stage.overlap(id, other)) overlapping_[static_cast<size_t>(id)].push_back(other);
      }
    }
  }
  for (int i = 0; i < std::ssize(stage.ops); ++i) {
    const Op& op = stage.ops[static_cast<size_t>(i)];
    note(readers_, op.in, i);
    note(mentions_, op.mentions, i);
    note(updaters_, op.updates, i);
    for (const ValueId id : op.out) {
      writer_[static_cast<size_t>(id)] = i;
      for (const ValueId other : overlapping_[static_cast<size_t>(id)]) writer_[static_cast<size_t>(other)] = i;
    }
  }
}

void Uses::note(Lists& lists, const std::vector<ValueId>& ids, int op) {
  for (const ValueId id : ids) {
    if (id == none) continue;
    lists[static_cast<size_t>(id)].push_back(op);
    for (const ValueId other : overlapping_[static_cast<size_t>(id)])
      lists[static_cast<size_t>(other)].push_back(op);
  }
}

}  // namespace heddle::ir

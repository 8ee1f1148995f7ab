#include "heddle/ir/uses.h"

namespace heddle::ir {

Uses::Uses(const Stage& stage)
    : stage_(stage),
      writer_(stage.values.size(), -1),
      readers_(stage.values.size()),
      mentions_(stage.values.size()),
      updaters_(stage.values.size()) {
  const auto note = [](Lists& lists, const std::vector<ValueId>& ids, int op) {
    for (const ValueId id : ids) {
      if (id != none) lists[static_cast<size_t>(id)].push_back(op);
    }
  };
  for (int i = 0; i < std::ssize(stage.ops); ++i) {
    const Op& op = stage.ops[static_cast<size_t>(i)];
    note(readers_, op.in, i);
    note(mentions_, op.mentions, i);
    note(updaters_, op.updates, i);
    for (const ValueId id : op.out) writer_[static_cast<size_t>(id)] = i;
  }
}

}  // namespace heddle::ir

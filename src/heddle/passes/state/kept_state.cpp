#include "heddle/passes/state/kept_state.h"

#include "heddle/ops/ops.h"
#include "heddle/passes/copies.h"

namespace heddle::passes {

using ir::Op;
using ir::ValueId;

namespace {
// Of an op that does: the state. None for any other op.
ValueId state_of(const ir::Listing& listing, const Op& op) {
  if (op.phase != ir::Phase::check || !ir::is_copy(op.def->moves) || op.updates.empty()) return ir::none;
  const bool out = op.def->moves == ir::Moves::to_host;
  const ValueId state = out ? op.in[0] : op.updates[0];
  const ir::Role role = listing.value(state).role;
  return role == ir::Role::optimizer || role == ir::Role::weight ? state : ir::none;
}
}  // namespace

std::map<ValueId, KeptState> kept_states(const ir::Listing& listing) {
  std::map<ValueId, KeptState> kept;
  for (const Op& op : listing.ops) {
    const ValueId state = state_of(listing, op);
    if (state == ir::none) continue;
    const bool out = op.def->moves == ir::Moves::to_host;
    KeptState& of = kept[state];
    of.copy = out ? op.updates[0] : op.in[0];
    (out ? of.before : of.back) = op.condition;
  }
  return kept;
}

bool keeps_state(const std::map<ValueId, KeptState>& kept, const Op& op) {
  if (op.phase != ir::Phase::check || !ir::is_copy(op.def->moves) || op.updates.empty()) return false;
  const ValueId from = op.in[0], to = op.updates[0];
  const auto out = kept.find(from), back = kept.find(to);
  return (out != kept.end() && out->second.copy == to) || (back != kept.end() && back->second.copy == from);
}

Op kept_by_processor(const Op& op) {
  Op copy = op_beside("copy", op.in[0], op);
  copy.updates = op.updates;
  copy.condition = op.condition;
  copy.stream = ir::kHostStream;
  return copy;
}

}  // namespace heddle::passes

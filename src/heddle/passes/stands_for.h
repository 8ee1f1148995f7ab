// Fused ops and what they stand for (ir::OpDef::stands_for): the ops are found in a stage to put the fused one in
// their place, and the fused one is taken apart where a pass has to do with one of them.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "heddle/ir/uses.h"

namespace heddle::passes {

/// Ops of a stage that a fused op could stand for.
struct Match {
  std::vector<int> ops;                              // of each line, an index into the stage's list
  std::map<std::string_view, ir::ValueId> value_of;  // by name
};

/// The ops that `fused` could stand for, the last of them at `last`; nothing when some are missing or belong to
/// another chunk, or when a value that the fused op would not show has readers besides them.
std::optional<Match> find_match(const ir::Stage& stage, const ir::Uses& uses, const ir::OpDef& fused, int last);

/// The fused op, with the phase, layer and part of the first of those that it stands for.
ir::Op fused_op(const ir::Stage& stage, const ir::OpDef& fused, const Match& match);

/// Those of the ops that a fused op stands for whose operands and results it shows, with its phase, layer and part.
/// One that reads nothing but what the fused op makes belongs to the layer and part of the op of F that reads its
/// own result first: a norm that was fused with the last addition of the layer before.
std::vector<ir::Op> shown_ops(const ir::Uses& uses, const ir::Op& fused);

/// The op that makes `fused`'s output number `output`: one of shown_ops, or the fused op itself.
ir::Op maker_of(const ir::Uses& uses, const ir::Op& fused, size_t output);

}  // namespace heddle::passes

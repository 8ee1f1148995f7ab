// Recompute: what the backward reads is made again instead of being kept since the forward.
//
// Ops of F are chosen by group and layer. Wherever an op of I or W reads what a chosen op made, a clone of that op
// is put right ahead of the first such reader. Clones of the chosen ops that it reads in turn come with it. The
// forward's own value then dies in the forward. What the backward does not read is not made again, so that a group
// may be generous. The input of every layer is kept; the output head is left alone, for its backward follows at
// once. Metadata (routing, counts, the sums of norms and softmaxes) and values of one number a row are kept too:
// they are small, and a replay never routes anew. Ops that may not be replayed are never cloned. The fused router's
// scores and gates are made again by the ops that it was fused from. Of a fused addition and norm only the norm is
// made again, where the sum is kept.
//
// A clone belongs to I if anything in I needs it, else to W. Where the schedule runs W apart from I, each has
// clones of its own: one clone for both would live from I to W and undo what the pass saves.
#pragma once

#include "heddle/passes/op_groups.h"

namespace heddle::passes {

/// The words that the switch memory.recompute takes.
std::vector<std::string> recompute_words();
std::vector<OpGroup> recompute_groups(std::string_view text);

/// On a differentiated listing. What an op makes that is never kept (ir::OpDef::made_again) is made again in any
/// case. `deferred`: its schedule runs I and W of a microbatch apart.
void recompute(ir::Listing& listing, const std::vector<OpGroup>& groups, bool deferred);

}  // namespace heddle::passes

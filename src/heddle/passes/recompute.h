// Recompute: what the backward reads is made again instead of being kept since the forward.
//
// Ops of F are chosen by group and layer. Wherever an op of I or W reads what a chosen op made, a clone of that op
// is put right ahead of the first such reader, with clones of the chosen ops that it reads in turn; the forward's
// own value then dies in the forward. What the backward does not read is not made again, so that a group may be
// generous. The input of every layer is kept; the output head is left alone, for its backward follows at once.
// Metadata (routing, counts, the sums of norms and softmaxes) and values of one number a row are kept too: they are
// small, and a replay never routes anew. Ops that may not be replayed are never cloned; of the fused router, scores
// and gates are made again by the ops that it was fused from, and of a fused addition and norm only the norm, where
// the sum is kept.
//
// A clone belongs to I if anything in I needs it, else to W. Where the schedule runs W apart from I, each has
// clones of its own: one clone for both would live from I to W and undo what the pass saves.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/ir/stage.h"

namespace heddle::passes {

/// A group of ops to be made again, in layers first to last.
struct RecomputeChoice {
  std::string group;
  int first_layer = 0, last_layer = std::numeric_limits<int>::max();
  bool operator==(const RecomputeChoice&) const = default;
};

/// What a word names: a group, or a level that stands for several.
struct RecomputeWord {
  std::string name;
  std::string meaning;
};
const std::vector<RecomputeWord>& recompute_words();

/// "norm, gather, attention:0-3" or "medium"; ":5" is layer 5 alone, "" nothing. ConfigError naming what is wrong.
std::vector<RecomputeChoice> parse_recompute(std::string_view text);

/// On a differentiated stage. `deferred`: its schedule runs I and W of a microbatch apart.
void recompute(ir::Stage& stage, const std::vector<RecomputeChoice>& choices, bool deferred);

}  // namespace heddle::passes

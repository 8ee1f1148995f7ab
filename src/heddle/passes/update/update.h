// The end of the step: gradient norm, clipping, AdamW for every trained parameter, new kernel weights, and the
// update of the balancing biases.
//
// Where several ranks hold copies of a weight, the optimizer is sharded over them (ZeRO, Rajbhandari et al., arXiv
// 1910.02054, stage 1): Gradients are reduce-scattered in buckets, last layer first, so that each bucket leaves as
// soon as the backward pass has finished with it. A rank holds master and moments of its run of elements. At the
// beginning of the next step the weights are gathered, first layer first, each just ahead of its first use. Sums
// and weights that passes/shard has cut are on their owners already; where several ranks own the same run, these
// share it.
#pragma once

#include <map>
#include <string>

#include "heddle/model/text/rank_text.h"
#include "heddle/passes/options/optimizer.h"

namespace heddle::passes {

struct UpdateOptions : Optimizer {
  bool move_biases = false;                // the routers' balancing biases, by the step's rate
  int64_t experts_chosen = 0;              // of a token
  int64_t biases_by_share = 0;             // of so many experts, by what their shares lack; 0: of all, by its sign
  bool fuse_copy = true;                   // adamw writes the weight's rounded copy itself
  bool split_masters = false;              // of bf16 weights, where the weight itself can be half of its master
  bool exact_sums = false;                 // accumulators are those of passes/exact_sums
  std::map<std::string, int> group_ranks;  // size of each mesh group; one that is not named has one rank
  /// By parameter: the order in which the copies of its uses are added up, see the op reduce_gradients.
  std::map<std::string, std::string> order_of_uses;
  int ranks_of(const std::string& group) const {
    const auto at = group_ranks.find(group);
    return at == group_ranks.end() ? 1 : at->second;
  }
};

/// Adds the ops of the end and of the beginning, and for each trained parameter its state. Moments are "m.NAME" and
/// "v.NAME" (by Muon the first alone), of the types that Optimizer::moments says. The master is "master.NAME",
/// unless the weight itself is wide, in rows and on one rank: then it is its own master. Where the master is split,
/// "rest.NAME" is the half of it that the rounded weight lacks. An average that is kept is "average.NAME", as the
/// master lies. State of a parameter with copies on G ranks is a run of ceil(elements ÷ G). The norm of all
/// gradients before clipping is a statistic; so is, where outliers are skipped, whether the step was left out. A
/// parameter whose gradient nothing makes is InternalError. Returns the ops that make anew, of master weights
/// alone, what the end of a step makes of them.
std::vector<ir::Op> update(model::RankText& text, const UpdateOptions& options);

/// A listing that runs such ops on what `owner`, listing number `index` of its program, holds.
ir::Listing restore_listing(const std::vector<ir::Op>& restores, const ir::Listing& owner, int index);

}  // namespace heddle::passes

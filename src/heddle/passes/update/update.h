// The end of the step: gradient norm, clipping, AdamW for every trained parameter, new kernel weights, and the
// update of the balancing biases.
//
// Where several ranks hold copies of a weight, the optimizer is sharded over them (ZeRO, Rajbhandari et al.,
// arXiv 1910.02054, stage 1): gradients are reduce-scattered in buckets, last layer first, so that each bucket
// leaves as soon as the backward pass has finished with it; a rank holds master and moments of its run of elements;
// and at the beginning of the next step the weights are gathered, first layer first, each just ahead of its first
// use.
#pragma once

#include <map>
#include <string>

#include "heddle/base/words.h"
#include "heddle/model/text/rank_text.h"

namespace heddle::passes {

/// By which rule parameters move.
enum class OptimizerRule : uint8_t {
  adamw,
  muon,  // matrices of hidden layers; all else by AdamW (passes/muon)
};
constexpr auto words_of(OptimizerRule) {
  return std::to_array<Word<OptimizerRule>>({{OptimizerRule::adamw, "adamw"}, {OptimizerRule::muon, "muon"}});
}

/// What is chosen of it.
struct Optimizer {
  OptimizerRule rule = OptimizerRule::adamw;
  double momentum = 0.95;  // Muon's
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  double clip_norm = 1.0;  // 0: off
  // Of a step that is not left out: its norm and its loss over the medians of recent ones, at most; 0: off.
  double skip_norm_above = 0, skip_loss_above = 0;
  int64_t bucket_bytes = int64_t{16} << 20;  // of gradients in one reduction
  double average_decay = 0;                  // of the average of masters that is kept beside them; 0: none is
  bool skips_outliers() const { return skip_norm_above > 0 || skip_loss_above > 0; }
  bool operator==(const Optimizer&) const = default;
};

struct UpdateOptions : Optimizer {
  bool move_biases = false;                // the routers' balancing biases, by the step's rate
  int64_t experts_chosen = 0;              // of a token
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

/// Adds for each trained parameter its moments "m.NAME", "v.NAME" (by Muon the first alone), its master
/// "master.NAME" (unless the weight itself is wide, in rows and on one rank, then it is its own master; or split,
/// then "rest.NAME" is the half of it that the rounded weight lacks), and the ops of the end and of the beginning.
/// An average that is kept is "average.NAME", as the master lies. State of a parameter with copies on G ranks is a
/// run of ceil(elements ÷ G). The norm of all gradients before clipping is a statistic; so is, where outliers are
/// skipped, whether the step was left out. A parameter whose gradient nothing makes is InternalError. Returns the
/// ops that make anew, of master weights alone, what the end of a step makes of them.
std::vector<ir::Op> update(model::RankText& text, const UpdateOptions& options);

/// A listing that runs such ops on what `owner`, listing number `index` of its program, holds.
ir::Listing restore_listing(const std::vector<ir::Op>& restores, const ir::Listing& owner, int index);

}  // namespace heddle::passes

// Weights that no rank holds whole (ZeRO, Rajbhandari et al., arXiv 1910.02054, stage 3; FSDP, Zhao et al., arXiv
// 2304.11277): each rank holds a run of their elements, and gathers the whole while a block of the schedule uses
// it.
//
// The weight stays in the table as the form of what is gathered (Space::nowhere). Its run is a weight of its own,
// which the end of the step writes. Ahead of the first reader in a block stands gather_rows
// (passes/host/bring_weights).
#pragma once

#include "heddle/model/text/rank_text.h"
#include "heddle/passes/host/bring_weights.h"

namespace heddle::passes {

/// The run that this rank holds of a sharded weight: "shard.NAME" where other ranks hold the same run, "copy.NAME",
/// or "master.NAME" where the weight is as wide as its master. None where the weight is whole.
ir::ValueId run_of_weight(const ir::Listing& listing, const std::string& name);

/// The elements of each of `ranks` equal runs, of which the last may be shorter.
int64_t run_elements(const ir::Listing& listing, ir::ValueId whole, int64_t ranks);

/// The weights that are to be sharded, with the number of ranks that share one.
using ShardedWeights = std::map<std::string, int>;

/// Moves the weights of a training listing to runs, ahead of `update`. Parameters say among whom
/// (Parameter::within). A frozen weight's run is "copy.NAME". Lossless.
void shard_weights(model::RankText& text, const ShardedWeights& weights, const BlockOrder& order,
                   const Durations& duration_us);

/// Lets a listing for another purpose gather the weights whose runs listing `index`, `owner`, holds.
void gather_sharded_weights(model::RankText& text, const ir::Listing& owner, int index,
                            const ShardedWeights& weights, const Durations& duration_us);

}  // namespace heddle::passes

// Which parameters are cut among the ranks that hold copies of them while a step runs, and among whom.
#pragma once

#include "heddle/model/text/rank_text.h"
#include "heddle/passes/shard/shard_weights.h"
#include "heddle/plan/choices.h"
#include "heddle/plan/mesh.h"

namespace heddle::plan {

/// The ranks among which a weight with `copies` is cut, where `shard_ranks` of a stage hold one copy of it together
/// (0: all of them). 1: it is whole.
int ranks_within(const Degrees& mesh, int shard_ranks, int copies);

/// True if so many neighbouring ranks of a stage can hold one copy: each has its share of whatever cuts a weight.
bool shard_ranks_go(const Degrees& mesh, int shard_ranks);

/// Tells the parameters of a rank's text among whom they are cut (Parameter::within, across; copies gets the order
/// of the runs). Returns the weights that `parallel.shard` cuts. Vectors, and what other pipeline ranks hold too,
/// stay whole. So does what has no equal runs, where several ranks hold the same one.
passes::ShardedWeights mark_sharded(model::RankText& text, const Parallel& parallel, const Mesh& mesh, int rank);

}  // namespace heddle::plan

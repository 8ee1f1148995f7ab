// Gradients and weights cut among the ranks that hold copies of them (parallel.shard): a choice of Heddle's own
// plans. The shares of a rank, and the messages of a microbatch and of a step.
#pragma once

#include <string>
#include <vector>

#include "heddle/cost/collective.h"
#include "heddle/model/shapes/shape.h"
#include "heddle/passes/options/shard.h"

namespace heddle::search {

struct Behaviour;
struct Job;
struct Prices;

/// The values of parallel.shard and parallel.shard_ranks.
struct Sharding {
  passes::Shard shard = passes::Shard::state;
  int ranks = 0;  // of a stage that hold one copy together; 0: as many as there are
  bool operator==(const Sharding&) const = default;
};

/// "weights sharded over 8 ranks"; "" where state alone is.
std::string text_of(const Sharding& sharding);

/// The ranks that share each weight, and each sum of gradients, of those that hold copies.
struct Cuts {
  int weights = 1, gradients = 1;
};
Cuts cuts_of(const Job& job, int copies);

/// The ranks that hold copies of what attention's ranks share, and of an expert.
cost::Group copies_of_shared(const Job& job);
cost::Group copies_of_expert(const Job& job);

/// True if the job's sharding goes with its layout and schedule.
bool sharding_goes(const Job& job);
/// True if it also cuts something.
bool shards(const Job& job);

/// Adds to the blocks, for a microbatch, what gathers and sums leave exposed beside their compute.
void add_sharding(const Job& job, const model::Parameters& parameters, const Behaviour& behaviour, Prices& to);

/// True if the embedding is cut too: not where several stages hold it.
bool shards_embedding(const Job& job);
/// Messages of an embedding of so many parameters for a microbatch.
double embedding_messages_s(const Job& job, double parameters, const Behaviour& behaviour);

/// A step's sums of gradients and gathers of weights over the ranks that hold copies of a run, or of the whole. Of
/// a rank's parameters so many are shared ones, and experts'.
struct EndMessages {
  double sums_s = 0, gathers_s = 0;
};
EndMessages end_messages(const Job& job, const Behaviour& behaviour, double shared, double experts);

/// The words that a search may choose from; none: any.
struct ShardingWords {
  std::vector<std::string> shard;  // words of parallel.shard
  std::vector<int> ranks;          // values of parallel.shard_ranks; empty: 0 and a node's
  bool unrestricted() const { return shard.empty() && ranks.empty(); }
};

/// Shardings to try for jobs on so many devices: state alone first, the one that cuts most last.
std::vector<Sharding> shardings_to_try(const Job& job, int devices, const ShardingWords& words);

}  // namespace heddle::search

#include "heddle/plan/sharding.h"

#include <algorithm>

#include "heddle/passes/host/residency_words.h"

namespace heddle::plan {

int ranks_within(const Degrees& mesh, int shard_ranks, int copies) {
  if (shard_ranks == 0) return copies;
  return std::max<int>(1, static_cast<int>(int64_t{shard_ranks} * copies / mesh.stage_ranks()));
}

bool shard_ranks_go(const Degrees& mesh, int shard_ranks) {
  const auto fits = [&](int cut) { return shard_ranks % cut == 0 || cut % shard_ranks == 0; };
  return mesh.stage_ranks() % shard_ranks == 0 && fits(mesh.tp) && fits(mesh.ep * mesh.etp) && fits(mesh.ep);
}

passes::ShardedWeights mark_sharded(model::RankText& text, const Parallel& parallel, const Mesh& mesh, int rank) {
  passes::ShardedWeights weights;
  const bool all = parallel.shard == passes::Shard::weights;
  for (model::Parameter& p : text.parameters) {
    if (!(p.trained || (p.frozen && all)) || p.start == model::Parameter::Start::rope_table) continue;
    if (p.on_several_stages || !model::is_matrix(p, text.listing) || !passes::holds(parallel.sharded, p)) continue;
    const auto copies = static_cast<int>(mesh.group(p.replica_group, rank).size());
    const int within = ranks_within(mesh.degrees(), parallel.shard_ranks, copies);
    if (within == 1) continue;
    if (within < copies) {
      if (text.listing.elements(p.value, ir::FixedRows()) % copies != 0) continue;
      p.within = fmt::format("{}_in{}", p.replica_group, within);
      p.across = fmt::format("{}_across{}", p.replica_group, within);
      p.replica_group = fmt::format("{}_by{}", p.replica_group, within);
    } else {
      p.within = p.replica_group;
    }
    if (all) weights[p.name] = within;
  }
  return weights;
}

}  // namespace heddle::plan

#include "heddle/search/plans/sharding.h"

#include <algorithm>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/plan/sharding.h"
#include "heddle/search/block_work.h"

namespace heddle::search {

namespace {

constexpr double kCutWeightBytes = 2;

// The ranks that share a run's copies, where each of `cut` neighbours in the group has another run.
cost::Group across_runs(cost::Group copies, int cut) { return {copies.size / cut, copies.stride * cut}; }

// A message of a microbatch. Each rank sends every other one its own run, or its part of the other's run, whose
// owner adds the parts in rank order.
double runs_s(const Job& j, const Behaviour& b, cost::Group group, double bytes) {
  return group.size > 1 ? cost::all_to_all_s(j.device, b.net, group, bytes) : 0;
}

// The part of a message that the compute beside it leaves exposed.
double shard_exposed_s(double message_s, const Work& beside, const Behaviour& b) {
  return std::max(0.0, message_s - beside.compute()) + b.contention * message_s;
}

}  // namespace

std::string text_of(const Sharding& sharding) {
  if (sharding.shard == passes::Shard::state) return "";
  const std::string text = fmt::format("{} sharded", word_of(sharding.shard));
  return sharding.ranks == 0 ? text : fmt::format("{} over {} ranks", text, sharding.ranks);
}

cost::Group copies_of_shared(const Job& j) { return {j.mesh.dp * j.mesh.cp, j.mesh.tp}; }

cost::Group copies_of_expert(const Job& j) {
  const plan::Degrees& l = j.mesh;
  return {std::max(1, l.tp * l.cp * l.dp / (l.ep * l.etp)), l.ep * l.etp};
}

Cuts cuts_of(const Job& j, int copies) {
  if (j.sharding.shard == passes::Shard::state) return {};
  const int within = std::min(copies, plan::ranks_within(j.mesh, j.sharding.ranks, copies));
  return {j.sharding.shard == passes::Shard::weights ? within : 1, within};
}

bool sharding_goes(const Job& j) {
  if (j.sharding.shard == passes::Shard::state) return true;
  if (j.mesh.pp > 1 && pipeline_of(j)->routes() > 1) return false;  // its copies of a stage run at different times
  return j.sharding.ranks == 0 || plan::shard_ranks_go(j.mesh, j.sharding.ranks);
}

bool shards(const Job& j) {
  if (j.sharding.shard == passes::Shard::state || !sharding_goes(j)) return false;
  // All ranks of a stage are no other choice than 0.
  if (j.sharding.ranks >= j.mesh.stage_ranks()) return false;
  return cuts_of(j, copies_of_shared(j).size).gradients > 1 ||
         (j.shape.n_routed_experts > 0 && cuts_of(j, copies_of_expert(j).size).gradients > 1);
}

void add_sharding(const Job& j, const model::Parameters& p, const Behaviour& b, Prices& to) {
  if (j.sharding.shard == passes::Shard::state) return;
  const double sum_bytes = j.frozen_base ? 0 : j.software.reduce_bytes;
  // `again`: the backward gathers a weight anew. Parts of a block share its compute.
  const auto add = [&](BlockWork& block, bool again, double shared, double experts) {
    double forward_s = 0, backward_s = 0;
    for (const auto& [group, parameters] :
         {std::pair(copies_of_shared(j), shared), std::pair(copies_of_expert(j), experts)}) {
      const Cuts cuts = cuts_of(j, group.size);
      const auto message_s = [&](int ranks, double bytes) {
        return runs_s(j, b, {ranks, group.stride}, bytes * parameters);
      };
      const double gather_s = message_s(cuts.weights, kCutWeightBytes);
      forward_s += gather_s;
      backward_s += (again ? gather_s : 0) + message_s(cuts.gradients, sum_bytes);
    }
    block.forward.data += shard_exposed_s(forward_s, block.forward, b);
    block.backward.data += shard_exposed_s(backward_s, block.backward, b);
  };
  const double tp = j.mesh.tp;
  add(to.attention, true, p.attention / tp, 0);
  add(to.dense, true, p.dense / tp, 0);
  add(to.mamba, true, p.mamba / tp, 0);
  add(to.moe, true, (p.moe - p.moe_routed) / tp, p.moe_routed / (j.mesh.ep * j.mesh.etp));
  add(to.head, false, p.head / tp, 0);  // its backward follows at once
}

bool shards_embedding(const Job& j) {
  return j.sharding.shard != passes::Shard::state && (j.mesh.pp == 1 || !j.shape.tie_word_embeddings);
}

double embedding_messages_s(const Job& j, double parameters, const Behaviour& b) {
  if (!shards_embedding(j)) return 0;
  const cost::Group group = copies_of_shared(j);
  const Cuts cuts = cuts_of(j, group.size);
  const auto message_s = [&](int ranks, double bytes) {
    return runs_s(j, b, {ranks, group.stride}, bytes * parameters / j.mesh.tp);
  };
  return message_s(cuts.weights, kCutWeightBytes) +
         message_s(cuts.gradients, j.frozen_base ? 0 : j.software.reduce_bytes);
}

EndMessages end_messages(const Job& j, const Behaviour& b, double shared, double experts) {
  EndMessages end;
  for (const auto& [group, parameters] :
       {std::pair(copies_of_shared(j), shared), std::pair(copies_of_expert(j), experts)}) {
    const Cuts cuts = cuts_of(j, group.size);
    const auto over_copies = [&](int cut, double bytes) {
      return cost::gather_s(j.device, b.net, across_runs(group, cut), bytes * parameters / cut);
    };
    end.sums_s += over_copies(cuts.gradients, j.software.reduce_bytes);
    end.gathers_s += over_copies(cuts.weights, kCutWeightBytes);
  }
  return end;
}

std::vector<Sharding> shardings_to_try(const Job& j, int devices, const ShardingWords& words) {
  std::vector<int> ranks = words.ranks;
  if (ranks.empty()) {
    if (j.device.inner.ranks > 1 && j.device.inner.ranks < devices) ranks.push_back(j.device.inner.ranks);
    ranks.push_back(0);
  }
  const auto may = [&](passes::Shard shard) {
    return words.shard.empty() ||
           std::find(words.shard.begin(), words.shard.end(), word_of(shard)) != words.shard.end();
  };
  std::vector<Sharding> all;
  if (may(passes::Shard::state)) all.push_back({});
  for (const int n : ranks)
    for (const passes::Shard shard : {passes::Shard::gradients, passes::Shard::weights})
      if (may(shard)) all.push_back({shard, n});
  return all;
}

}  // namespace heddle::search

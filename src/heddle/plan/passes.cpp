#include "heddle/plan/passes.h"

#include <algorithm>
#include <chrono>

#include "heddle/ir/gradient.h"
#include "heddle/ir/verify/verify.h"
#include "heddle/ops/ops.h"
#include "heddle/passes/adapters.h"
#include "heddle/passes/exact_sums.h"
#include "heddle/passes/fp8.h"
#include "heddle/passes/fuse.h"
#include "heddle/passes/host/host_gradients.h"
#include "heddle/passes/host/host_weights.h"
#include "heddle/passes/host/offload.h"
#include "heddle/passes/index_stage.h"
#include "heddle/passes/overlap/choice.h"
#include "heddle/passes/overlap/panels.h"
#include "heddle/passes/pack_weights.h"
#include "heddle/passes/product_ways.h"
#include "heddle/passes/recompute.h"
#include "heddle/passes/reuse_lists.h"
#include "heddle/passes/round_weights.h"
#include "heddle/passes/second_round.h"
#include "heddle/passes/shard/shard_gradients.h"
#include "heddle/passes/shard/shard_weights.h"
#include "heddle/passes/state/host_state.h"
#include "heddle/passes/state/snapshot.h"
#include "heddle/passes/state/stream_state.h"
#include "heddle/passes/update/join_updates.h"
#include "heddle/passes/update/move_experts.h"
#include "heddle/passes/update/update.h"
#include "heddle/plan/costs/durations.h"
#include "heddle/plan/sharding.h"
#include "heddle/schedule/apart.h"

namespace heddle::plan {

namespace {

// The weights of a stage for another purpose are those of the training stage, in its layout.
void share_weights(ir::Listing& listing, const ir::Listing& owner, int owner_index) {
  for (ir::Value& value : listing.values) {
    if (value.role != ir::Role::weight) continue;
    const ir::Value& owned = owner.value(owner.find(value.name));
    value.layout = owned.layout;
    value.packed_bytes = owned.packed_bytes;
    value.shared_with = owner_index;
  }
}

template <class Run>
void on_each(Draft& d, const Run& run) {
  for (int r = 0; r < std::ssize(d.texts); ++r) run(d.texts[r], r);
}
const std::vector<schedule::Action>& actions_of(const Draft& d, int rank) { return d.order.order[rank]; }

// A rank of the mesh that has this place in the pipeline.
int rank_at(const Mesh& mesh, int pipeline_rank) {
  int rank = 0;
  while (mesh.at(rank).at(ir::Axis::pp) != pipeline_rank) ++rank;
  return rank;
}

passes::BlockOrder block_order(const Draft& d, int r) {
  return {.deferred = schedule::defers_weight_gradients(actions_of(d, r)),
          .at_once = schedule::goes_back_at_once(actions_of(d, r), d.order.placement.stages_of(r))};
}

bool always(const Draft&) { return true; }
bool trains(const Draft& d) { return d.trains(); }

void fuse(Draft& d) {
  on_each(d, [&](model::RankText& text, int) { passes::fuse(text.listing, d.plan.fusions); });
}

void adapters(Draft& d) { passes::adapters(d.texts, d.plan.lora, d.mesh.at(0), d.model.num_hidden_layers); }

void index_stage(Draft& d) {
  on_each(d, [&](model::RankText& text, int) { passes::index_stage(text, d.model.index_stage); });
}

void join_copies_of(Draft& d) { d.shared = join_copies(d.texts, d.order.placement); }

void differentiate(Draft& d) {
  on_each(d, [](model::RankText& text, int) { ir::differentiate(text.listing, ops::find("add"), {}, {}); });
}

void fuse_norm_gradient(Draft& d) {
  on_each(d, [](model::RankText& text, int) { passes::fuse_norm_gradient(text.listing); });
}

void reuse_lists(Draft& d) {
  on_each(d, [](model::RankText& text, int) { passes::reuse_lists(text.listing); });
}

bool has_second_round(const Draft& d) {
  const model::Dispatcher& exchange = d.plan.parallel.exchange;
  return d.trains() && exchange.room_factor > 0 && exchange.second_round;
}
void second_round(Draft& d) {
  on_each(d, [](model::RankText& text, int) { passes::second_round(text.listing); });
}

void recompute(Draft& d) {
  on_each(d, [&](model::RankText& text, int r) {
    passes::recompute(text.listing, d.plan.memory.recompute, schedule::defers_weight_gradients(actions_of(d, r)));
  });
}

void fuse_loss(Draft& d) {
  on_each(d, [](model::RankText& text, int) { passes::fuse_loss(text.listing); });
}

void fp8(Draft& d) {
  on_each(d, [](model::RankText& text, int) { passes::fp8(text.listing); });
}

void pack_weights(Draft& d) {
  on_each(d, [&](model::RankText& text, int) {
    passes::pack_weights(text.listing, [&](const ir::Value& weight) {
      return d.shared.unlike.contains(weight.name) ? 0 : d.plan.packed_bytes(weight);
    });
  });
}

void exact_sums(Draft& d) {
  on_each(d, [](model::RankText& text, int) { passes::exact_sums(text.listing); });
}

void offload(Draft& d) {
  on_each(d, [&](model::RankText& text, int r) {
    passes::offload(text.listing, d.plan.memory.offload, schedule::defers_weight_gradients(actions_of(d, r)),
                    schedule::stands_apart(actions_of(d, r), d.order.placement.stages_of(r)), d.durations);
  });
}

void shard(Draft& d) {
  on_each(d, [&](model::RankText& text, int r) {
    passes::shard_weights(text, mark_sharded(text, d.plan.parallel, d.mesh, rank_at(d.mesh, r)), block_order(d, r),
                          d.durations);
  });
}

void shard_gradients(Draft& d) {
  on_each(d, [&](model::RankText& text, int r) {
    std::map<std::string, int> ranks;
    for (const model::Parameter& p : text.parameters) {
      if (!p.within.empty()) ranks[p.within] = static_cast<int>(d.mesh.group(p.within, rank_at(d.mesh, r)).size());
    }
    passes::shard_gradients(text, ranks);
  });
}

// Other purposes gather what the training stage holds in runs.
void gather_runs(Draft& d) {
  on_each(d, [&](model::RankText& text, int r) {
    const ir::Listing& owner = d.program.listings[r];
    passes::ShardedWeights weights = mark_sharded(text, d.plan.parallel, d.mesh, rank_at(d.mesh, r));
    std::erase_if(weights,
                  [&](const auto& of) { return owner.value(owner.find(of.first)).space != ir::Space::nowhere; });
    passes::gather_sharded_weights(text, owner, r, weights, d.durations);
  });
}

// Bytes of gradients in one reduction. What is left of the last bucket when the backward ends hides behind nothing.
// So where the links' rates are known, a bucket is no longer than a message must be to run at nearly their full
// rate.
int64_t bucket_bytes(const Plan& plan) {
  constexpr double kLatencies = 10;
  const auto bytes =
      static_cast<int64_t>(kLatencies * plan.rates.message_latency_us * plan.rates.message_bytes_per_us);
  return bytes > 0 ? std::min(plan.update.bucket_bytes, bytes) : plan.update.bucket_bytes;
}

void update(Draft& d) {
  on_each(d, [&](model::RankText& text, int r) {
    passes::UpdateOptions options{d.plan.update};
    options.bucket_bytes = bucket_bytes(d.plan);
    options.exact_sums = d.plan.exact_sums;
    const int rank = rank_at(d.mesh, r);
    options.group_ranks["world"] = d.mesh.ranks();
    for (const model::Parameter& p : text.parameters) {
      for (const std::string& group : {p.replica_group, p.across}) {
        if (!group.empty()) options.group_ranks[group] = static_cast<int>(d.mesh.group(group, rank).size());
      }
    }
    options.group_ranks["tp"] = d.plan.mesh.tp;
    options.group_ranks["etp"] = d.plan.mesh.etp;
    options.experts_chosen = d.model.num_experts_per_tok;
    if (d.model.bias_balance == model::BiasBalance::share) options.biases_by_share = d.model.n_routed_experts;
    options.move_biases = d.model.bias_update_rate != 0.0 && !d.model.trains_indexers_alone();
    options.fuse_copy = d.plan.fusions.contains("adamw");
    options.split_masters = d.plan.memory.master == MasterForm::split;
    if (!d.plan.exact_sums) options.order_of_uses = d.shared.order;
    d.restores.push_back(passes::update(text, options));
  });
}

void move_experts(Draft& d) {
  on_each(d, [&](model::RankText& text, int) { passes::move_experts(text, d.mesh.at(0)); });
}

void snapshot(Draft& d) {
  on_each(d, [&](model::RankText& text, int r) { d.snapshots.push_back(passes::snapshot_listing(text, r)); });
}

void stream_state(Draft& d) {
  on_each(d,
          [&](model::RankText& text, int) { passes::stream_state(text.listing, d.plan.rates.host_bytes_per_us); });
}

void map_state(Draft& d) {
  on_each(d, [](model::RankText& text, int) { passes::map_state(text.listing); });
}

void host_weights(Draft& d) {
  on_each(d, [&](model::RankText& text, int r) {
    passes::BlockOrder order;
    std::map<ir::ValueId, passes::Residency> residencies;
    if (d.trains()) {
      order = block_order(d, r);
      for (const auto& [weight, residency] :
           passes::residencies_of(text.parameters, text.listing, d.plan.memory.weights)) {
        const ir::ValueId run = passes::run_of_weight(text.listing, text.listing.value(weight).name);
        residencies[run == ir::none ? weight : run] = residency;
      }
    } else {
      for (ir::Value& value : text.listing.values) {  // those of the training stage, where they lie
        if (value.role != ir::Role::weight) continue;
        const ir::Listing& owner = d.program.listings[value.shared_with];
        value.space = owner.value(owner.find(value.name)).space;
      }
    }
    passes::host_weights(text.listing, residencies, order, d.durations);
  });
}

void host_gradients(Draft& d) {
  on_each(d, [&](model::RankText& text, int r) {
    passes::host_gradients(text.listing,
                           passes::residencies_of(text.parameters, text.listing, d.plan.memory.gradients),
                           schedule::defers_weight_gradients(actions_of(d, r)), d.durations);
  });
}

void round_weights(Draft& d) {
  on_each(d, [&](model::RankText& text, int r) {
    if (d.trains()) return passes::round_weights(text.listing, d.plan.microbatches, d.plan.turns_weights);
    passes::share_rounded_weights(text.listing, d.program.listings[r], r);
  });
}

void host_state(Draft& d) {
  on_each(d, [&](model::RankText& text, int) { passes::host_state(text.listing, d.plan.rates.host_bytes_per_us); });
}

void join_updates(Draft& d) {
  on_each(d, [](model::RankText& text, int) { passes::join_updates(text.listing); });
}

void share_weights_of_training(Draft& d) {
  on_each(d, [&](model::RankText& text, int r) { share_weights(text.listing, d.program.listings[r], r); });
}

// The cache that a sequence's tokens are kept in is the one that the next token is read from.
void share_cache(Draft& d) {
  on_each(d, [&](model::RankText& text, int r) {
    const int owner = d.program.first_listing[static_cast<size_t>(ir::Purpose::prefill)] + r;
    for (ir::Value& value : text.listing.values) {
      if (value.role == ir::Role::cache) value.shared_with = owner;
    }
  });
}

void weave(Draft& d) {
  for (ir::Block& block : d.program.blocks) {
    passes::weave(d.program, block, d.durations, d.plan.parallel.weave == Weave::pairs);
  }
}

void product_ways(Draft& d) {
  on_each(d, [&](model::RankText& text, int) {
    passes::product_ways(text.listing,
                         {d.plan.device.expert_product, d.plan.rates.ways, balanced_rows(text.listing)});
  });
}

passes::Panels panels_of(const Draft& d) {
  const Parallel& parallel = d.plan.parallel;
  return {.stated = parallel.tp_panels,
          .woven = parallel.weave != Weave::off,
          .latency_us = d.plan.rates.message_bytes_per_us > 0 ? d.plan.rates.message_latency_us
                                                              : parallel.exchange.within_latency_us};
}

void tiles(Draft& d) {
  on_each(d, [&](model::RankText& text, int) { passes::tiles_by_rates(text.listing, panels_of(d), d.durations); });
}

void fused(Draft& d) {
  on_each(d, [&](model::RankText& text, int) { passes::fuse_by_rates(text.listing, panels_of(d), d.durations); });
}

void overlap_by_cost(Draft& d) {
  on_each(d, [&](model::RankText& text, int) { passes::overlap_by_cost(text.listing, panels_of(d), d.durations); });
}

template <TpOverlap way>
bool overlaps(const Draft& d) {
  return d.trains() && d.plan.parallel.tp_overlap == way && d.plan.mesh.tp > 1;
}

const std::vector<Pass> kPasses{
    {"fuse", "", Pass::Level::text, always, fuse},
    {"adapters", "fuse", Pass::Level::text, [](const Draft& d) { return d.plan.lora.rank > 0; }, adapters},
    {"index_stage", "fuse", Pass::Level::text,
     [](const Draft& d) { return d.model.selects() && d.plan.lora.rank == 0; }, index_stage},
    {"join_copies", "fuse adapters", Pass::Level::text, trains, join_copies_of},
    {"differentiate", "fuse adapters index_stage", Pass::Level::text, trains, differentiate},
    {"fuse_norm_gradient", "differentiate", Pass::Level::text,
     [](const Draft& d) { return d.trains() && d.plan.fusions.contains("norm"); }, fuse_norm_gradient},
    {"reuse_lists", "differentiate", Pass::Level::text, [](const Draft& d) { return d.plan.parallel.reuse_lists; },
     reuse_lists},
    {"second_round", "differentiate fuse_norm_gradient reuse_lists", Pass::Level::text, has_second_round,
     second_round},
    {"recompute", "differentiate reuse_lists second_round", Pass::Level::text,
     [](const Draft& d) {
       return d.trains() && (!d.plan.memory.recompute.empty() || d.plan.parallel.exchange.replica_slots() > 0 ||
                             has_second_round(d));
     },
     recompute},
    {"fuse_loss", "differentiate recompute", Pass::Level::text,
     [](const Draft& d) { return d.trains() && d.plan.fusions.contains("loss"); }, fuse_loss},
    {"fp8", "differentiate recompute fuse_loss", Pass::Level::text,
     [](const Draft& d) { return d.plan.device.fp8 != passes::Fp8::off; }, fp8},
    {"shard", "join_copies differentiate recompute fuse_loss fp8", Pass::Level::text,
     [](const Draft& d) { return d.trains() && d.plan.parallel.shard != passes::Shard::state; }, shard},
    {"pack_weights", "join_copies differentiate fp8 shard", Pass::Level::text,
     [](const Draft& d) {
       // A program that goes on from a cache reads a part of a weight by columns.
       return d.trains() && d.plan.device.pack_weights && d.plan.packed_bytes != nullptr &&
              d.plan.cached_sequences == 0;
     },
     pack_weights},
    {"exact_sums", "differentiate fuse_loss", Pass::Level::text,
     [](const Draft& d) { return d.trains() && d.plan.exact_sums; }, exact_sums},
    {"shard_gradients", "shard exact_sums", Pass::Level::text,
     [](const Draft& d) { return d.trains() && d.plan.parallel.shard != passes::Shard::state; }, shard_gradients},
    {"offload", "recompute", Pass::Level::text,
     [](const Draft& d) { return d.trains() && !d.plan.memory.offload.empty(); }, offload},
    {"update", "join_copies pack_weights exact_sums shard_gradients", Pass::Level::text, trains, update},
    {"move_experts", "update", Pass::Level::text,
     [](const Draft& d) { return d.trains() && d.plan.mesh.ep > 1 && d.plan.parallel.exchange.migrates(); },
     move_experts},
    {"stream_state", "update", Pass::Level::text,
     [](const Draft& d) { return d.trains() && d.plan.memory.optimizer == StateResidency::swap; }, stream_state},
    {"map_state", "update", Pass::Level::text,
     [](const Draft& d) { return d.trains() && d.plan.memory.optimizer == StateResidency::mapped; }, map_state},
    {"host_state", "update", Pass::Level::text,
     [](const Draft& d) { return d.trains() && d.plan.memory.optimizer == StateResidency::host; }, host_state},
    {"share_weights", "", Pass::Level::text, [](const Draft& d) { return !d.trains(); }, share_weights_of_training},
    {"gather_runs", "share_weights", Pass::Level::text,
     [](const Draft& d) { return !d.trains() && d.plan.parallel.shard == passes::Shard::weights; }, gather_runs},
    {"share_cache", "", Pass::Level::text, [](const Draft& d) { return d.purpose == ir::Purpose::decode; },
     share_cache},
    {"host_weights", "offload update stream_state map_state share_weights gather_runs", Pass::Level::text,
     [](const Draft& d) { return !d.plan.memory.weights.empty(); }, host_weights},
    {"host_gradients", "offload update stream_state map_state host_weights", Pass::Level::text,
     [](const Draft& d) { return d.trains() && !d.plan.memory.gradients.empty(); }, host_gradients},
    {"round_weights", "fp8 update share_weights gather_runs host_weights", Pass::Level::text,
     [](const Draft& d) {
       return d.plan.device.fp8 != passes::Fp8::off && d.plan.device.fp8_weights == passes::Fp8Weights::step;
     },
     round_weights},
    {"join_updates", "update stream_state map_state host_state host_weights host_gradients", Pass::Level::text,
     [](const Draft& d) {
       const JoinUpdates wanted = d.plan.device.join_updates;
       return d.trains() &&
              (wanted == JoinUpdates::on || (wanted == JoinUpdates::wherever && d.plan.launches_cost));
     },
     join_updates},
    {"product_ways", "exact_sums update", Pass::Level::text,
     [](const Draft& d) { return d.plan.device.expert_product != ProductWay::grouped; }, product_ways},
    {"tiles", "recompute update host_weights host_gradients", Pass::Level::text, overlaps<TpOverlap::tiles>, tiles},
    {"fused", "recompute update host_weights host_gradients", Pass::Level::text, overlaps<TpOverlap::fused>, fused},
    {"overlap_by_cost", "recompute update host_weights host_gradients", Pass::Level::text,
     overlaps<TpOverlap::cheapest>, overlap_by_cost},
    {"snapshot", "update stream_state map_state host_state host_weights", Pass::Level::text,
     [](const Draft& d) { return d.trains() && d.plan.snapshot_every > 0; }, snapshot},
    {"weave", "", Pass::Level::blocks,
     [](const Draft& d) { return d.trains() && d.plan.parallel.weave != Weave::off; }, weave},
};

size_t ops_of(const Draft& d, Pass::Level level) {
  size_t ops = 0;
  if (level == Pass::Level::text) {
    for (const model::RankText& text : d.texts) ops += text.listing.ops.size();
  } else {
    for (const ir::Block& block : d.program.blocks) ops += block.steps.size();
  }
  return ops;
}

void check_order() {
  std::vector<std::string_view> before;
  for (const Pass& pass : kPasses) {
    for (const std::string_view name : ir::names_in(pass.after)) {
      HEDDLE_CHECK(std::find(before.begin(), before.end(), name) != before.end(), "pass '{}' comes before '{}'",
                   pass.name, name);
    }
    before.push_back(pass.name);
  }
}

}  // namespace

const std::vector<Pass>& passes() {
  static const std::vector<Pass>& ordered = (check_order(), kPasses);
  return ordered;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : passes()) names.emplace_back(pass.name);
  return names;
}

bool run_passes(Draft& draft, Pass::Level level, std::string_view until, std::vector<PassNote>& notes) {
  using Clock = std::chrono::steady_clock;
  for (const Pass& pass : passes()) {
    if (pass.level != level) continue;
    if (pass.wanted(draft)) {
      PassNote& note = notes.emplace_back();
      note.name = pass.name;
      note.purpose = draft.purpose;
      note.ops_before = ops_of(draft, level);
      const Clock::time_point start = Clock::now();
      pass.run(draft);
      note.seconds = std::chrono::duration<double>(Clock::now() - start).count();
      note.ops_after = ops_of(draft, level);
      try {
        for (const model::RankText& text : draft.texts) ir::verify(text.listing);
      } catch (const InternalError& error) {
        internal_error("after pass '{}': {}", pass.name, error.what());
      }
    }
    if (pass.name == until) return true;
  }
  return false;
}

}  // namespace heddle::plan

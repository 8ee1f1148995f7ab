#include "heddle/search/plan_memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "heddle/search/block_work.h"
#include "heddle/search/lowered_blocks.h"
#include "heddle/search/units.h"

namespace heddle::search {

namespace {

/// Bytes by what they are of.
struct Kinds {
  double weights = 0, gradients = 0, states = 0;
  double attention = 0, dense = 0, experts = 0, mamba = 0;  // activations kept
  double working = 0;
};

// Static bytes are linear in the bytes of gradients and states: what goes when either is nought.
template <class Bytes>
void split_static(const Job& job, const Bytes& static_bytes, Kinds& into) {
  const double whole = static_bytes(job);
  const auto of = [&](double Software::*bytes) {
    Job less = job;
    less.software.*bytes = 0;
    if (bytes == &Software::state_bytes) less.residency.away_bytes = 0;
    return std::max(0.0, whole - static_bytes(less));
  };
  into.gradients = of(&Software::gradient_bytes);
  into.states = of(&Software::state_bytes);
  into.weights = std::max(0.0, whole - into.gradients - into.states);
}

/// How many blocks of each kind there are.
struct Blocks {
  double attention = 0, dense = 0, moe = 0, mamba = 0;
};

Blocks blocks_of(const model::Shape& s, double layers) {
  const double part = layers / d(s.num_hidden_layers);
  return {part * d(s.attention_blocks()), part * d(s.dense_blocks()), part * d(s.moe_blocks()),
          part * d(s.mamba_blocks())};
}

// Kept activations in the proportion of what such blocks keep.
void add_kept(const Job& job, const Behaviour& behaviour, double bytes, const Blocks& blocks, Kinds& into) {
  const SavedBytes kept =
      layers_of(job, prices_of(job, model::parameters_of(job.shape), behaviour), behaviour).kept;
  const double attention = kept.attention * blocks.attention, dense = kept.dense * blocks.dense,
               experts = kept.moe * blocks.moe, mamba = kept.mamba * blocks.mamba,
               all = attention + dense + experts + mamba;
  if (all <= 0) {
    into.working += bytes;
    return;
  }
  into.attention += bytes * attention / all;
  into.dense += bytes * dense / all;
  into.experts += bytes * experts / all;
  into.mamba += bytes * mamba / all;
}

// Blocks of a stage: dense layers come first, multi-token prediction last.
Blocks blocks_of_stage(const Job& job, const std::vector<int>& layers, size_t stage) {
  const model::Shape& s = job.shape;
  const double mtp = job.with_mtp && stage + 1 == layers.size() ? d(s.num_nextn_predict_layers) : 0;
  Blocks blocks{mtp, 0, 0, 0};
  (s.moe_blocks() > 0 ? blocks.moe : blocks.dense) += mtp;
  if (s.interleaves() || s.shortcut_experts) return blocks_of(s, layers[stage] + mtp);
  int64_t before = 0;
  for (size_t i = 0; i < stage; ++i) before += layers[i];
  const double dense = d(std::clamp<int64_t>(s.dense_blocks() - before, 0, layers[stage]));
  blocks.attention += layers[stage];
  blocks.dense += dense;
  blocks.moe += layers[stage] - dense;
  return blocks;
}

// The fullest rank's own bytes under a schedule that was run.
Kinds kinds_of(const TimedPlan& plan, const TimedSchedule& run, const Behaviour& behaviour) {
  const schedule::Placement& placement = run.prepared->schedule.placement;
  const auto rank = static_cast<size_t>(run.fullest_rank);
  Kinds kinds;
  split_static(
      plan.launch.job,
      [&](const Job& j) {
        return stage_job(j, behaviour, placement, run.keeping, run.staged.layers).fixed_bytes[rank];
      },
      kinds);
  // A stage's part of the peak in the proportion of what it keeps of a microbatch.
  double sum = 0;
  std::vector<std::pair<size_t, double>> stages;
  for (const int copy : placement.stages_of(run.fullest_rank)) {
    const auto s = static_cast<size_t>(copy % placement.stages);
    const schedule::StageBytes& bytes = run.staged.stage_bytes[s];
    stages.emplace_back(s, bytes.until_input_grad + bytes.until_weight_grad);
    sum += stages.back().second;
  }
  for (const auto& [s, bytes] : stages) {
    Job job = plan.launch.job;
    job.recompute = run.keeping[s].recompute;
    job.software.offload_activations = run.keeping[s].offload;
    if (bytes > 0)
      add_kept(job, behaviour, run.peaks[rank].bytes * bytes / sum, blocks_of_stage(job, run.staged.layers, s),
               kinds);
  }
  kinds.working += run.staged.working_bytes[rank];
  return kinds;
}

// Parts by the closed forms. Offload takes a fixed share of what is kept and none of the work space: toggling it
// separates them.
Kinds kinds_of(const Job& job, const Behaviour& behaviour) {
  Kinds kinds;
  split_static(
      job, [&](const Job& j) { return estimate(j, behaviour).static_bytes; }, kinds);
  Job toggled = job;
  toggled.software.offload_activations = !job.software.offload_activations;
  const double active = estimate(job, behaviour).activation_bytes,
               moved = std::abs(active - estimate(toggled, behaviour).activation_bytes);
  const double left = job.software.offload_activations ? 1 - kOffloaded : 1;
  const double kept = std::clamp(moved / kOffloaded * left, 0.0, active);
  add_kept(job, behaviour, kept, blocks_of(job.shape, d(job.shape.num_hidden_layers)), kinds);
  kinds.working += active - kept;
  return kinds;
}

}  // namespace

std::vector<MemoryPart> memory_parts(const TimedPlan& plan, const Behaviour& behaviour) {
  const Kinds k = plan.run ? kinds_of(plan, *plan.run, behaviour) : kinds_of(plan.launch.job, behaviour);
  std::vector<MemoryPart> parts{{"weights", k.weights},
                                {"gradients", k.gradients},
                                {"optimizer states", k.states},
                                {"attention's activations", k.attention},
                                {"dense layers' activations", k.dense},
                                {"experts' activations", k.experts},
                                {"Mamba's activations", k.mamba},
                                {"head and work space", k.working}};
  double sum = 0;
  for (const MemoryPart& p : parts) sum += p.bytes;
  if (plan.exact.peak_bytes > sum * (1 + 1e-9)) parts.push_back({"reserved beside", plan.exact.peak_bytes - sum});
  std::stable_sort(parts.begin(), parts.end(),
                   [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
  std::erase_if(parts, [](const MemoryPart& p) { return p.bytes <= 0; });
  return parts;
}

std::vector<Remedy> remedies_of(const Launch& launch, const Exact& base, double limit, PlanTimer& timer) {
  const Job& job = launch.job;
  std::vector<Remedy> all;
  const auto attempt = [&](std::string what, const auto& change) {
    Job other = job;
    change(other);
    if (other == job) return;
    if (!estimate(other, timer.behaviour()).reason.empty()) return;
    const Exact e = timer.timed(with_job(launch, other)).exact;
    if (e.peak_bytes >= base.peak_bytes) return;
    all.push_back(
        {std::move(what), std::move(other), base.peak_bytes - e.peak_bytes, e.step_s - base.step_s, e.peak_bytes});
  };
  using R = Recompute;
  const bool experts = job.shape.n_routed_experts > 0;
  if (!job.recompute.has(GroupName::layer)) {
    attempt("recompute of norms", [](Job& j) { j.recompute.set(GroupName::norm); });
    attempt("recompute of activation functions", [](Job& j) { j.recompute.set(GroupName::activation); });
    attempt("recompute of norms and activation functions",
            [](Job& j) { j.recompute.set(GroupName::norm), j.recompute.set(GroupName::activation); });
    if (job.shape.is_latent())
      attempt("recompute of latent projections, norms and activation functions", [](Job& j) {
        j.recompute.set(GroupName::mla_up), j.recompute.set(GroupName::norm),
            j.recompute.set(GroupName::activation);
      });
    if (!job.software.fused_attention)
      attempt("recompute of attention's scores", [](Job& j) { j.recompute.set(GroupName::attention); });
    if (job.shape.dense_blocks() > 0)
      attempt("recompute of dense layers", [](Job& j) { j.recompute.set(GroupName::mlp); });
    if (experts) attempt("recompute of whole mixture layers", [](Job& j) { j.recompute.set(GroupName::moe); });
    attempt("recompute of every second layer", [](Job& j) { j.recompute = R{{GroupName::layer}, 0.5}; });
  }
  attempt("recompute of all layers", [](Job& j) { j.recompute = R{GroupName::layer}; });
  attempt("offload of activations", [](Job& j) { j.software.offload_activations = true; });
  attempt("microbatches of 1", [](Job& j) { j.microbatch = 1; });
  attempt("optimizer states sharded over data ranks",
          [](Job& j) { j.software.sharded_states = j.software.reduce_scatter = true; });
  if (job.software.lowered != nullptr) {
    for (const PricedResidency& other : worth_trying(job.software.lowered->residencies(job), {}))
      attempt(text_of(other), [&](Job& j) { j.residency = other; });
    for (const Sharding& other : shardings_to_try(job, job.mesh.ranks(), {}))
      attempt(text_of(other), [&](Job& j) {
        j.sharding = other;
        if (!shards(j)) j.sharding = job.sharding;
      });
  } else {
    attempt("weights sharded over data ranks", [](Job& j) {
      j.software.sharded_weights = j.software.sharded_states = j.software.reduce_scatter = true;
    });
  }
  std::stable_sort(all.begin(), all.end(), [&](const Remedy& a, const Remedy& b) {
    const bool fits_a = a.peak_bytes <= limit, fits_b = b.peak_bytes <= limit;
    if (fits_a != fits_b) return fits_a;
    if (fits_a) return a.costs_s < b.costs_s;
    return a.costs_s * b.frees_bytes < b.costs_s * a.frees_bytes;
  });
  return all;
}

}  // namespace heddle::search

#include "heddle/search/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "heddle/plan/layout.h"
#include "heddle/search/plans/context.h"

namespace heddle::search {

namespace {

// "t" × n, shorter where that pays.
std::string letters(int n) {
  if (n > 4) return fmt::format("t*{}", n);
  return std::string(static_cast<size_t>(n), 't');
}

}  // namespace

std::vector<int> layers_of_stages(const Job& j) {
  const int ranks = j.mesh.pp, chunks = std::max(1, pipeline_size(j).chunks), stages = ranks * chunks;
  const auto layers = static_cast<int>(j.shape.num_hidden_layers);
  std::vector<int> of_stage(static_cast<size_t>(stages), 0);
  if (pipeline_of(j)->folded() && chunks == 2) {
    // The first rank bears both ends of the model: what doesn't divide goes to the middle, which the last ranks
    // hold.
    for (int s = 0; s < stages; ++s) of_stage[s] = layers / stages;
    for (int more = layers % stages, i = 0; more > 0; --more, ++i)
      ++of_stage[static_cast<size_t>(i % 2 == 0 ? ranks - 1 - i / 2 : ranks + i / 2)];
    return of_stage;
  }
  const StageLayers rank = stage_layers(layers, ranks, chunks, 1);
  std::vector<int> of_rank(static_cast<size_t>(ranks), 0);
  of_rank.back() = std::min(layers, static_cast<int>(rank.last));
  // The others share the rest; the first ranks take one less, for they also keep the most activations.
  if (ranks > 1) {
    const int rest = layers - of_rank.back(), others = ranks - 1;
    for (int r = 0; r < others; ++r) of_rank[r] = rest / others + (r >= others - rest % others ? 1 : 0);
  }
  for (int r = 0; r < ranks; ++r) {
    const int n = of_rank[r];
    for (int c = 0; c < chunks; ++c) {
      // The head's chunk is the last rank's last one: what a rank has too few of is missing there, and on the first
      // rank beside the embedding.
      const int place = r == 0 ? chunks - 1 - c : c;
      of_stage[static_cast<size_t>(c * ranks + r)] = n / chunks + (place < n % chunks ? 1 : 0);
    }
  }
  return of_stage;
}

std::string layout_text(const Job& j) { return layout_text(j, layers_of_stages(j)); }

std::string layout_text(const Job& j, const std::vector<int>& layers) {
  if (std::all_of(layers.begin(), layers.end(), [&](int n) { return n == layers.front(); })) return "";
  std::string out = "E";
  const auto mtp = static_cast<size_t>(j.with_mtp ? j.shape.num_nextn_predict_layers : 0);
  for (size_t s = 0; s < layers.size();) {
    size_t same = 1;
    // Whole stages repeat only between the first one and the last one, which have letters of their own.
    while (s > 0 && s + same + 1 < layers.size() && layers[s + same] == layers[s]) ++same;
    if (s + 1 == layers.size()) {
      out += letters(layers[s]) + std::string(mtp, 'm') + "L";
    } else if (same > 2) {
      out += fmt::format("({}|)*{}", letters(layers[s]), same);
    } else {
      for (size_t i = 0; i < same; ++i) out += letters(layers[s]) + "|";
    }
    s += same;
  }
  return out;
}

Launch with_job(const Launch& launch, const Job& job) {
  const auto stages = [](const Job& j) {
    const schedule::PipelineSize size = pipeline_size(j);
    return j.mesh.pp * std::max(1, size.chunks);
  };
  Launch other = launch;
  other.job = job;
  other.schedule = pipeline_of(job)->name();
  const Job& was = launch.job;
  const bool same = job.mesh.pp == was.mesh.pp && stages(job) == stages(was);
  if (!same) {
    other.noop.clear();
    const bool even = launch.layout.empty() && job.shape.num_hidden_layers % std::max(1, stages(job)) == 0;
    other.layout = job.mesh.pp > 1 && !even ? layout_text(job) : "";
  }
  if (!same || job.recompute != was.recompute ||
      job.software.offload_activations != was.software.offload_activations)
    other.by_stage.clear();
  return other;
}

int64_t places_of(const Launch& launch) {
  return launch.job.shape.num_hidden_layers + static_cast<int64_t>(launch.noop.size());
}

Launch padded(Launch launch) {
  launch.noop.clear();
  const int stages = launch.job.mesh.pp * std::max(1, pipeline_size(launch.job).chunks);
  if (launch.layout.empty() || stages < 2) return launch;
  std::vector<int> layers;
  for (const std::string& stage : plan::letters_of_layout(launch.layout, stages))
    layers.push_back(static_cast<int>(std::count(stage.begin(), stage.end(), 't')));
  const int most = *std::max_element(layers.begin(), layers.end());
  for (int s = 0; s < stages; ++s)
    for (int place = layers[s]; place < most; ++place) launch.noop.push_back(s * most + place);
  return launch;
}

std::string_view misfit_of(const Job& j) { return pipeline_of(j)->misfit(pipeline_size(j)); }

std::string impossible(const Launch& launch) {
  const std::string reason = estimate(launch.job).reason;
  return reason.empty() ? std::string(misfit_of(launch.job)) : reason;
}

Launch launch_of(const Job& job) {
  Launch l;
  l.job = job;
  l.schedule = pipeline_of(job)->name();
  // Pairs of microbatches hide each other's exchange.
  if (pipeline_of(job)->pairs() && job.mesh.ep > 1) l.job.software.overlap_exchange = true;
  l.layout = job.mesh.pp > 1 ? layout_text(job) : "";
  return l;
}

Launch launch_of(const Job& job, const std::vector<int>& layers) {
  Launch l = launch_of(job);
  if (job.mesh.pp > 1) l.layout = layout_text(job, layers);
  return l;
}

Launch normalized(Launch launch) {
  Job& j = launch.job;
  plan::Degrees& l = j.mesh;
  Software& s = j.software;
  model::Shape& shape = j.shape;
  const Software usual;
  if (!j.with_mtp) shape.num_nextn_predict_layers = 0, j.with_mtp = true;
  if (l.tp == 1) s.sequence_parallel = usual.sequence_parallel, s.overlap_tp = usual.overlap_tp;
  if (!s.sequence_parallel) s.overlap_tp = false;
  fit_context(j);
  j.pipeline = pipeline_of(j);
  if (l.pp == 1 || j.pipeline->chunks() > 0) j.chunks = 1;
  if (j.pipeline->pairs() || l.pp == 1 || std::max(j.chunks, j.pipeline->chunks()) == 1)
    s.overlap_pp = usual.overlap_pp;
  if (!shape.has_experts()) {
    shape.drop_experts();
    j.exchange = Job().exchange;
    l.ep = l.etp = 1;
    j.imbalance = 1;
    j.recompute.set(GroupName::moe, false);
  } else {
    shape.first_k_dense_replace = std::min(shape.first_k_dense_replace, shape.num_hidden_layers);
    if (shape.shared_width() == 0) shape.shared_expert_gate = false;
    if (shape.n_group <= 1) shape.topk_group = 1;
  }
  if (j.exchange.capacity_factor > 0)
    j.exchange.topology = ir::Topology::plain;  // places go straight to their experts
  if (l.ep == 1) j.exchange.topology = Job().exchange.topology, s.overlap_exchange = false;
  if (l.ep == 1 || j.exchange.capacity_factor > 0) j.exchange.replicas = 0;
  if (j.pipeline->outline().hides_exchange) s.overlap_exchange = l.ep > 1;
  if (l.ep == 1 || s.overlap_exchange || shape.n_routed_experts == 0) s.layer_overlap = LayerOverlap::none;
  if (s.layer_overlap == LayerOverlap::shared && shape.shared_width() == 0) s.layer_overlap = LayerOverlap::none;
  if (shape.is_latent()) {
    shape.num_key_value_heads = shape.num_attention_heads;
    shape.head_dim = shape.qk_head_dim();
    shape.attention_bias = model::AttentionBias::none;
    shape.qk_norm = shape.attention_sinks = false;
  }
  if (shape.dense_blocks() == 0) shape.mlp_bias = false, j.recompute.set(GroupName::mlp, false);
  if (!j.recompute.has(GroupName::layer)) j.recompute.every = 1;
  if (j.recompute.has(GroupName::layer) && j.recompute.every == 1) j.recompute = {GroupName::layer};
  if (s.sharded_weights) s.sharded_states = true;
  if (sharding_goes(j) && !shards(j)) {  // all ranks of a stage are as many as there are
    j.sharding.ranks = 0;
    if (!shards(j)) j.sharding = {};
  }
  if (!s.pairs_overlap_gradients && j.pipeline->pairs()) s.overlap_dp = false;
  if (!s.overlap_dp || !s.sharded_states || s.sharded_weights) s.overlap_gather = usual.overlap_gather;
  s.pairs_overlap_gradients = usual.pairs_overlap_gradients;
  return launch;
}

}  // namespace heddle::search

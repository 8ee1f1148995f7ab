// Peak memory of the fullest rank: a stage keeps its parameters' bytes and the activations of the microbatches that
// its schedule has in flight; the first stage has most of those, the last one the head.
#include <algorithm>
#include <cmath>

#include "heddle/search/block_work.h"

namespace heddle::search {

namespace {

double d(int64_t n) { return static_cast<double>(n); }

}  // namespace

void saved_bytes_of(const Job& j, Layers& into) {
  model::Saving saving;
  saving.fused_attention = j.software.fused_attention;
  saving.sequence_parallel = j.software.sequence_parallel;
  saving.dropout = j.software.dropout;
  saving.narrow_inputs = j.precision != cost::Precision::bf16 && j.precision != cost::Precision::fp16;
  saving.tp = j.layout.tp;
  saving.etp = j.layout.etp;
  saving.imbalance = j.memory_imbalance > 0 ? j.memory_imbalance : j.imbalance;
  into.whole = model::saved_bytes(j.shape, saving, j.sequence);
  saving.recompute = j.recompute;
  into.kept = model::saved_bytes(j.shape, saving, j.sequence);
}

void estimate_memory(const Job& j, const model::Parameters& p, const Layers& of, Estimate& e) {
  const Layout& l = j.layout;
  const Software& sw = j.software;
  const Pipeline pipeline = pipeline_of(j);
  const int chunks = chunks_of(pipeline) > 0 ? chunks_of(pipeline) : l.vpp;
  const double held = copies(pipeline), m = microbatches(j);
  const model::Shape& s = j.shape;
  const double layers = d(s.layers), expert_ranks = static_cast<double>(l.ep) * l.etp;
  const double n_attention = d(s.attention_blocks()) / layers, n_dense = d(s.dense_blocks()) / layers,
               n_moe = d(s.moe_blocks()) / layers, n_mamba = d(s.mamba_blocks()) / layers;
  const double shards = static_cast<double>(l.dp) * l.cp;
  const double expert_shards = std::max(1.0, l.tp * l.cp * l.dp / expert_ranks);

  const double trained = j.frozen_base ? 0.005 : 1;
  const auto bytes_of = [&](double parameters, double spread, double held) {
    const double by = sw.sharded_weights ? spread : 1;
    return parameters * model::static_bytes_per_parameter(held * 2 / by, held * trained * sw.gradient_bytes / by,
                                                          trained * sw.state_bytes,
                                                          sw.sharded_weights || sw.sharded_states ? spread : 1);
  };
  const double layer_shared =
      (p.attention * n_attention + p.dense * n_dense + (p.moe - p.moe_routed) * n_moe + p.mamba * n_mamba) / l.tp;
  const double layer_routed = p.moe_routed * n_moe / expert_ranks;

  const model::SavedBytes &whole = of.whole, &kept = of.kept;
  const double tokens = j.microbatch * j.sequence / l.cp;
  const double layer_kept =
      tokens * (sw.offload_activations ? 0.85 : 1) *
      (kept.attention * n_attention + kept.dense * n_dense + kept.moe * n_moe + kept.mamba * n_mamba);
  // While a layer is computed again all that it would have kept is alive; its gradients are, in any case.
  const double widest = tokens * (n_attention > 0 ? whole.attention : 0) +
                        tokens * std::max({n_dense > 0 ? whole.dense : 0, n_moe > 0 ? whole.moe : 0, whole.mamba});
  const double working = (j.recompute.full ? 1 : 0.25) * widest;

  const StageLayers stage = stage_layers(layers, l.pp, chunks, 1);
  const double head_kept = tokens * model::head_bytes(s, l.tp, sw.fused_loss);
  // The gradient of the logits stands beside them, and without a fused loss a copy in fp32.
  const double head_working = head_kept + tokens * (sw.fused_loss ? 2 : 6) * d(s.vocab) / l.tp;
  const double mtp = j.with_mtp ? d(s.mtp) : 0;
  e.peak_bytes = 0;
  for (const int i : {0, std::min(1, l.pp - 1), l.pp - 1}) {
    const bool first = i == 0, last = i == (folded(pipeline) ? 0 : l.pp - 1);
    double n = last ? stage.last : stage.fullest;
    if (first && !last && stage.last < stage.fullest) n = stage.fullest - 1;
    const double owned = n + (last ? mtp : 0);
    double fixed = bytes_of(n * layer_shared, shards, held) + bytes_of(n * layer_routed, expert_shards, held);
    // The second copies of the ends are on other ranks, and so is half of the ends' states.
    if (last) fixed += bytes_of(mtp * layer_shared, shards, 1) + bytes_of(mtp * layer_routed, expert_shards, 1);
    if (first) fixed += bytes_of(p.embedding / l.tp, shards, 1);
    // A tied matrix lies on both ends of a pipeline.
    const bool apart = s.tied && l.pp > 1 && !(first && last);
    if (last) fixed += bytes_of((p.head + (apart ? p.embedding : 0)) / l.tp, shards, 1);
    // Weights of two layers are gathered at once, gradients of one are whole.
    if (sw.sharded_weights) fixed += 2 * 2 * (layer_shared + layer_routed) + 4 * (layer_shared + layer_routed);
    const double active = in_flight(pipeline, l.pp, chunks, m, i) * owned * layer_kept +
                          (last ? std::max(working, head_working) : working);
    if (fixed + active <= e.peak_bytes) continue;
    e.peak_bytes = fixed + active;
    e.static_bytes = fixed;
    e.activation_bytes = active;
  }
  e.peak_bytes = e.peak_bytes * sw.reserve + sw.context_bytes;
}

}  // namespace heddle::search

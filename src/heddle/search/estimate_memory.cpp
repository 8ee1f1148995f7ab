// Peak memory of the fullest rank. A stage keeps its parameters' bytes and the activations of the microbatches that
// its schedule has in flight. The first stage has most of those, the last one the head.
#include <algorithm>
#include <cmath>

#include "heddle/search/block_work.h"
#include "heddle/search/plans/replicas.h"
#include "heddle/search/units.h"

namespace heddle::search {

namespace {

// Bytes a token of the gradients that are alive at once in the backward of other trainers' widest block: those of
// the feed-forward's two inner values beside its output's.
double gradient_bytes(const Job& j) {
  const model::Shape& s = j.shape;
  const double rows = j.software.sequence_parallel ? j.mesh.tp : 1, gated = s.has_gated_mlp() ? 6 : 4;
  const double dense = s.dense_blocks() > 0 ? gated * d(s.intermediate_size) / j.mesh.tp : 0;
  const double experts =
      s.moe_blocks() > 0
          ? s.computing_experts() * fullest_rows(j, j.imbalance) *
                (gated * d(s.moe_intermediate_size) / rows + 4 * d(s.hidden_size) * j.mesh.etp / rows)
          : 0;
  return std::max(dense, experts) + 2 * d(s.hidden_size) / rows;
}

}  // namespace

void saved_bytes_of(const Job& j, const Prices& prices, Layers& into) {
  if (prices.saved) {
    into.whole = prices.saved->whole;
    into.kept = prices.saved->kept;
    return;
  }
  Saving saving;
  saving.fused_attention = j.software.fused_attention;
  saving.sequence_parallel = j.software.sequence_parallel;
  saving.dropout = j.software.dropout;
  saving.narrow_inputs = j.precision != cost::Precision::bf16 && j.precision != cost::Precision::fp16;
  saving.narrow_gates = j.software.narrow_gates;
  saving.tp = j.mesh.tp;
  saving.etp = j.mesh.etp;
  saving.imbalance = fullest_rows(j, prices.kept_imbalance);
  into.whole = saved_bytes(j.shape, saving, j.sequence);
  saving.recompute = j.recompute;
  into.kept = saved_bytes(j.shape, saving, j.sequence);
}

MemoryParts memory_parts(const Job& j, const model::Parameters& p, const Layers& of) {
  const plan::Degrees& l = j.mesh;
  const Software& sw = j.software;
  const model::Shape& s = j.shape;
  const double layers = d(s.num_hidden_layers), expert_ranks = static_cast<double>(l.ep) * l.etp;
  const double shards = static_cast<double>(l.dp) * l.cp;
  const double expert_shards = std::max(1.0, l.tp * l.cp * l.dp / expert_ranks);
  const PricedResidency& home = j.residency;
  const double trained = j.frozen_base ? 0.005 : 1;
  const bool in_one_go = j.chunks > 1 && microbatches(j) <= l.pp;
  const double whole_chunks = sw.sharded_gradients && in_one_go ? 1.0 / j.chunks : 1;
  const Cuts shared_cuts = cuts_of(j, copies_of_shared(j).size), expert_cuts = cuts_of(j, copies_of_expert(j).size);
  // Beside its runs a rank has the whole of `weights` copies of what it uses and uses next, and of a gradient.
  const auto gathered_of = [&](const Cuts& cuts, double weights) {
    return (cuts.weights > 1 ? 2 * weights : 0) + (cuts.gradients > 1 ? trained * sw.gradient_bytes : 0);
  };
  // Copies of what lies on the host: of what a microbatch uses, and of what it uses next.
  const double copied = 2 * ((!home.weights.empty() ? 2 : 0) + (!home.gradients.empty() ? sw.gradient_bytes : 0));
  const double held = pipeline_of(j)->routes(), tokens = j.microbatch * j.sequence / l.cp;
  // Bytes of a parameter that is spread over so many ranks.
  struct Rates {
    double fixed, fixed_once, gathered, hosted, hosted_once, weights_hosted, gradients_hosted;
  };
  const auto rates_of = [&](double spread, const Cuts& cuts) {
    const double by = sw.sharded_weights ? spread : 1;
    const double gradient = sw.gradient_bytes * (whole_chunks + (1 - whole_chunks) / spread) / cuts.gradients;
    const double weights_hosted = home.weights.empty() ? 0 : 2.0 / cuts.weights;
    const double gradients_hosted = home.gradients.empty() ? 0 : sw.gradient_bytes / cuts.gradients;
    const auto fixed = [&](double times) {
      return static_bytes_per_parameter(!home.weights.empty() ? 0 : times * 2 / (by * cuts.weights),
                                        !home.gradients.empty() ? 0 : times * trained * gradient / by,
                                        trained * (sw.state_bytes - home.away_bytes),
                                        sw.sharded_weights || sw.sharded_states ? spread : 1);
    };
    const auto hosted = [&](double times) {
      return static_bytes_per_parameter(times * weights_hosted, times * trained * gradients_hosted,
                                        trained * home.host_bytes, sw.sharded_states ? spread : 1);
    };
    // Weights of two layers are gathered at once, gradients of one are whole.
    return Rates{fixed(held),     fixed(1),  (sw.sharded_weights ? 8 : copied) + gathered_of(cuts, 2),
                 hosted(held),    hosted(1), weights_hosted,
                 gradients_hosted};
  };
  const Rates of_shared = rates_of(shards, shared_cuts), of_expert = rates_of(expert_shards, expert_cuts);
  const double kept_tokens = tokens * (sw.offload_activations ? 1 - kOffloaded : 1);
  const SavedBytes &whole = of.whole, &kept = of.kept;
  MemoryParts parts;
  // A layer of so many blocks of each kind.
  const auto layer = [&](double attention, double dense, double moe, double mamba) {
    const double shared =
        (p.attention * attention + p.dense * dense + (p.moe - p.moe_routed) * moe + p.mamba * mamba) / l.tp;
    const double routed = p.moe_routed * moe / expert_ranks;
    const auto both = [&](double Rates::*rate) { return shared * of_shared.*rate + routed * of_expert.*rate; };
    return LayerMemory{
        both(&Rates::fixed),
        both(&Rates::fixed_once),
        both(&Rates::gathered),
        kept_tokens * (kept.attention * attention + kept.dense * dense + kept.moe * moe + kept.mamba * mamba),
        both(&Rates::hosted),
        both(&Rates::weights_hosted),
        both(&Rates::gradients_hosted)};
  };
  const bool has_dense = s.dense_blocks() > 0, has_moe = s.moe_blocks() > 0,
             has_attention = s.attention_blocks() > 0;
  parts.mean = layer(d(s.attention_blocks()) / layers, d(s.dense_blocks()) / layers, d(s.moe_blocks()) / layers,
                     d(s.mamba_blocks()) / layers);
  parts.dense = s.interleaves() ? parts.mean : layer(1, 1, 0, 0);
  parts.moe = s.interleaves() ? parts.mean : layer(1, 0, 1, 0);
  // A last stage by itself is never the fullest; where the first rank has it too, what it has fewer counts.
  parts.head_layers = pipeline_of(j)->folded() ? of.head_s / of.layer_s : 1;
  const Cuts embedding_cuts = shards_embedding(j) ? shared_cuts : Cuts();
  const Rates of_embedding = shards_embedding(j) ? of_shared : rates_of(shards, embedding_cuts);
  parts.embedding_fixed = p.embedding / l.tp * of_embedding.fixed_once;
  parts.head_fixed = p.head / l.tp * of_shared.fixed_once;
  parts.embedding_hosted = p.embedding / l.tp * of_embedding.hosted_once;
  parts.head_hosted = p.head / l.tp * of_shared.hosted_once;
  // While a layer is computed again all that it would have kept is alive; its gradients are, in any case.
  const double widest = tokens * ((has_attention ? whole.attention : 0) +
                                  std::max({has_dense ? whole.dense : 0, has_moe ? whole.moe : 0, whole.mamba}));
  const double backward = sw.lowered != nullptr ? 0.25 * widest : tokens * gradient_bytes(j);
  const double again = sw.lowered != nullptr || !sw.fused_attention ? widest : widest + backward;
  parts.working = (j.recompute.has(GroupName::layer) ? again : backward) + replica_bytes(j);
  // The gradient of the logits stands beside them. A loss that is not fused writes it over its fp32 copy of the
  // logits, when the logits themselves are gone.
  parts.head_working = std::max(parts.working, tokens * (head_bytes(s, l.tp, sw.fused_loss) +
                                                         (sw.fused_loss ? 2 : 0) * d(s.vocab_size) / l.tp)) +
                       (copied / 2 + gathered_of(shared_cuts, 1)) * p.head / l.tp;
  // The embedding's come where the layers' are gone.
  const double embedding_gathered = gathered_of(embedding_cuts, 1) * p.embedding / l.tp - parts.mean.gathered -
                                    (l.pp == 1 ? gathered_of(shared_cuts, 1) * p.head / l.tp : 0);
  parts.embedding_working = copied / 2 * p.embedding / l.tp + std::max(0.0, embedding_gathered);
  return parts;
}

void estimate_memory(const Job& j, const MemoryParts& parts, Estimate& e) {
  const plan::Degrees& l = j.mesh;
  const schedule::Pipeline& pipeline = *pipeline_of(j);
  const schedule::PipelineSize size = pipeline_size(j);
  const int shared = l.pp > 1 ? pipeline.routes() : 1;  // ranks that share a stage, as for time
  StageLayers stage = stage_layers(d(j.shape.num_hidden_layers), l.pp / shared, size.chunks, parts.head_layers);
  stage = {stage.fullest / shared, stage.last / shared};
  const double mtp = j.with_mtp ? d(j.shape.num_nextn_predict_layers) : 0;
  e.peak_bytes = e.host_bytes = 0;
  for (const int i : {0, std::min(1, l.pp - 1), l.pp - 1}) {
    const bool first = i == 0, last = i == (pipeline.folded() ? 0 : l.pp - 1);
    double n = last ? stage.last : stage.fullest;
    if (first && !last && stage.last < stage.fullest) n = stage.fullest - 1;
    double fixed = n * parts.mean.fixed + parts.mean.gathered;
    // The second copies of the ends are on other ranks, and so is half of the ends' states.
    if (last) fixed += mtp * parts.mean.fixed_once + parts.head_fixed;
    // A tied matrix lies on both ends of a pipeline.
    if (first || (last && j.shape.tie_word_embeddings)) fixed += parts.embedding_fixed;
    e.host_bytes = std::max(e.host_bytes, n * parts.mean.hosted + (first ? parts.embedding_hosted : 0) +
                                              (last ? mtp * parts.mean.hosted + parts.head_hosted : 0));
    const double active = pipeline.in_flight(size, i) * (n + (last ? mtp / shared : 0)) * parts.mean.kept +
                          (last ? parts.head_working : parts.working) + (first ? parts.embedding_working : 0);
    if (fixed + active <= e.peak_bytes) continue;
    e.peak_bytes = fixed + active;
    e.static_bytes = fixed;
    e.activation_bytes = active;
  }
  e.peak_bytes = e.peak_bytes * j.software.reserve + j.software.context_bytes;
}

}  // namespace heddle::search

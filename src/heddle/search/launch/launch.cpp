#include "heddle/search/launch/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace heddle::search {

namespace {

// "t" × n, shorter where that pays.
std::string letters(int n) {
  if (n > 4) return fmt::format("t*{}", n);
  return std::string(static_cast<size_t>(n), 't');
}

}  // namespace

std::vector<int> layers_of_stages(const Job& j) {
  const int ranks = j.layout.pp, chunks = std::max(1, pipeline_size(j).chunks), stages = ranks * chunks;
  const auto layers = static_cast<int>(j.shape.layers);
  std::vector<int> of_stage(static_cast<size_t>(stages), 0);
  if (pipeline_of(j)->folded() && chunks == 2) {
    // The first rank bears both ends of the model: what doesn't divide goes to the middle, which the last ranks
    // hold.
    for (int s = 0; s < stages; ++s) of_stage[static_cast<size_t>(s)] = layers / stages;
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
    for (int r = 0; r < others; ++r)
      of_rank[static_cast<size_t>(r)] = rest / others + (r >= others - rest % others ? 1 : 0);
  }
  for (int r = 0; r < ranks; ++r) {
    const int n = of_rank[static_cast<size_t>(r)];
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
  const auto mtp = static_cast<size_t>(j.with_mtp ? j.shape.mtp : 0);
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

std::string_view misfit_of(const Job& j) { return pipeline_of(j)->misfit(pipeline_size(j)); }

Launch launch_of(const Job& job) {
  Launch l;
  l.job = job;
  l.schedule = pipeline_of(job)->name();
  // Pairs of microbatches hide each other's exchange.
  if (pipeline_of(job)->pairs() && job.layout.ep > 1) l.job.software.overlap_exchange = true;
  l.layout = job.layout.pp > 1 ? layout_text(job) : "";
  return l;
}

Launch launch_of(const Job& job, const std::vector<int>& layers) {
  Launch l = launch_of(job);
  if (job.layout.pp > 1) l.layout = layout_text(job, layers);
  return l;
}

Launch normalized(Launch launch) {
  Job& j = launch.job;
  Layout& l = j.layout;
  Software& s = j.software;
  model::Shape& shape = j.shape;
  const Software usual;
  if (!j.with_mtp) shape.mtp = 0, j.with_mtp = true;
  if (l.tp == 1) s.sequence_parallel = usual.sequence_parallel, s.overlap_tp = usual.overlap_tp;
  if (!s.sequence_parallel) s.overlap_tp = false;
  if (l.cp == 1) s.context_all_to_all = usual.context_all_to_all;
  j.pipeline = pipeline_of(j);
  s.dual_pipe = false;
  if (l.pp == 1 || j.pipeline->chunks() > 0) l.vpp = 1;
  if (j.pipeline->pairs() || l.pp == 1 || std::max(l.vpp, j.pipeline->chunks()) == 1)
    s.overlap_pp = usual.overlap_pp;
  if (shape.moe.count == 0) {
    shape.moe = {};
    shape.dense_layers = 0;
    l.ep = l.etp = 1;
    j.imbalance = 1;
    j.recompute.experts = false;
  } else {
    shape.dense_layers = std::min(shape.dense_layers, shape.layers);
    if (shape.moe.shared_ffn == 0) shape.moe.shared_gate = false;
    if (shape.moe.most_nodes == 0) {
      shape.moe.groups = 0;
    } else if (shape.moe.groups == 0) {  // as many as nodes; twice as many as a token may reach
      shape.moe.groups = 2 * shape.moe.most_nodes;
      while (shape.moe.groups > shape.moe.most_nodes && shape.moe.count % shape.moe.groups != 0) --shape.moe.groups;
    }
  }
  if (shape.moe.capacity > 0) s.once_a_node = false;  // places go straight to their experts
  if (l.ep == 1) s.once_a_node = usual.once_a_node, s.overlap_exchange = false;
  if (l.ep == 1 || shape.moe.capacity > 0) shape.moe.replicas = 0;
  if (j.pipeline->outline().hides_exchange) s.overlap_exchange = l.ep > 1;
  if (shape.is_mla()) {
    shape.kv_heads = shape.heads;
    shape.head_dim = shape.mla.nope_dim + shape.mla.rope_dim;
    shape.qkv_bias = shape.out_bias = shape.qk_norm = shape.sinks = false;
  } else {
    shape.mla = {};
  }
  if (shape.dense_blocks() == 0) shape.ffn_bias = false, j.recompute.dense = false;
  if (!j.recompute.full) j.recompute.every = 1;
  if (j.recompute.full && j.recompute.every == 1) j.recompute = {.full = true};
  if (s.sharded_weights) s.sharded_states = true;
  if (!s.pairs_overlap_gradients && j.pipeline->pairs()) s.overlap_dp = false;
  s.pairs_overlap_gradients = usual.pairs_overlap_gradients;
  return launch;
}

}  // namespace heddle::search

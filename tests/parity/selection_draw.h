// Keys that an indexer selects, and compressed keys, in drawn models.
#pragma once

#include "heddle/model/keys.h"
#include "tests/parity/draw.h"

namespace heddle::parity {

constexpr int kTakesAll = 60;  // keys, of fewer

/// In a quarter of the draws of latent attention, indexers that select keys, in every stage of their training.
/// Scores that are equal but for rounding would let another layout choose another key: where layouts round
/// differently all are taken.
template <class Dice>
void draw_selection(Draw& d, Dice dice) {
  model::ModelConfig& c = d.model;
  if (!c.is_latent() || !dice.one_in(4)) return;
  c.sliding_window = c.max_window_layers = c.full_attention_interval = c.full_attention_offset = 0;
  c.attention_dropout = 0;
  c.index_topk = dice.of({1, 5, 13, kTakesAll});
  if (d.plan.dtype != Dtype::f64) c.index_topk = kTakesAll;
  c.index_n_heads = 3;
  c.index_head_dim = dice.of({4, 6});
  c.indexer_rope_interleave = dice.one_in(2);
  c.index_loss_weight = 0.7;
  c.index_stage = static_cast<model::IndexStage>(dice.of({0, 0, 0, 1, 2}));
  if (dice.one_in(3)) c.index_topk_freq = 2, c.index_skip_topk_offset = 1;
  if (d.plan.lora.rank > 0) c.index_stage = model::IndexStage::off;
  if (d.plan.mesh.cp > 1) d.plan.parallel.context = model::Context::gather;
}

/// In a sixth of the draws, heads that share one key, with a window and compressed keys. As above, all entries are
/// taken where layouts round differently.
template <class Dice, class Fits>
void draw_compression(Draw& d, Dice dice, const Fits& fits) {
  const model::ModelConfig before = d.model;
  const plan::Plan plan = d.plan;
  model::ModelConfig& c = d.model;
  if (!dice.one_in(6) || c.recurs() || c.is_hybrid() || c.shortcut_experts || !c.turns()) return;
  c.attention = model::ModelConfig::Attention::compressed;
  c.num_nextn_predict_layers = 0;
  c.zero_centered_norms = false;
  c.attention_dropout = 0;
  c.rope_scaling.reset();
  c.max_window_layers = c.full_attention_interval = c.full_attention_offset = 0;
  c.q_lora_rank = 8;
  c.head_dim = 6;
  c.qk_rope_head_dim = 4;
  c.sliding_window = dice.of({1, 5, 13});
  c.window_rope_theta = dice.one_in(2) ? 100 : 0;
  c.attention_sinks = !dice.one_in(3);
  c.compression_pattern.clear();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) c.compression_pattern += "WSH"[dice.of({0, 1, 1, 2})];
  c.sparse_rate = dice.of({1, 2, 3, 4});
  c.heavy_rate = dice.of({5, 8});
  c.o_groups = d.plan.mesh.tp * (dice.one_in(2) ? 1 : 2);
  if (c.num_attention_heads % c.o_groups != 0) c.o_groups = d.plan.mesh.tp;
  c.o_lora_rank = 4;
  c.index_topk = !c.has_compression(model::Compression::sparse) ? 0
                 : d.plan.dtype == Dtype::f64                   ? dice.of({1, 3, kTakesAll})
                                                                : kTakesAll;
  c.index_n_heads = 3;
  c.index_head_dim = 6;
  c.index_stage = model::IndexStage::off;
  // Four norms more a layer magnify what fp32 rounds in rows that see next to nothing.
  if (d.plan.dtype != Dtype::f64) c.rms_norm_eps = 1e-2;
  c.limited_gates = c.experts_limit > 0 || c.mlp_limit > 0;
  model::reset_foreign_keys(c);
  if (d.plan.mesh.cp > 1) d.plan.parallel.context = model::Context::gather;
  d.plan.update.qk_clip = 0;
  d.plan.lora.rank = 0;  // the map of groups of heads is none that an adapter stands beside
  if (fits(d)) return;
  d.model = before;
  d.plan = plan;
}

}  // namespace heddle::parity

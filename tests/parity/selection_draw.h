// Keys that an indexer selects, and compressed keys, in drawn models.
#pragma once

#include "heddle/model/keys.h"
#include "tests/parity/draw.h"

namespace heddle::parity {

constexpr int kTakesAll = 60;  // keys, of fewer

/// A stage of training indexers, most often that of chosen keys. Adapters freeze indexers.
template <class Dice>
void draw_stage(Draw& d, Dice dice) {
  d.model.index_loss_weight = 0.7;
  d.model.index_stage = static_cast<model::IndexStage>(dice.of({0, 0, 0, 1, 2}));
  if (d.plan.lora.rank > 0) d.model.index_stage = model::IndexStage::off;
}

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
  draw_stage(d, dice);
  if (dice.one_in(3)) c.index_topk_freq = 2, c.index_skip_topk_offset = 1;
  if (d.plan.mesh.cp > 1) d.plan.parallel.context = model::Context::gather;
}

/// In a third of the draws of latent attention each, sinks and gates.
template <class Dice>
void draw_latent_gates(model::ModelConfig& c, Dice dice) {
  if ((c.experts_limit > 0 || c.mlp_limit > 0) && dice.one_in(3)) c.limited_gates = true;
  if (!c.is_latent()) return;
  if (dice.one_in(3)) c.attention_sinks = true;
  if (dice.one_in(3))
    c.attention_gate = dice.one_in(2) ? model::AttentionGate::head : model::AttentionGate::element;
  if (!c.selects()) return;
  c.indexer_rope_last = dice.one_in(2);
  c.indexer_norm_eps = dice.one_in(2) ? 1e-6 : 1e-3;
}

/// In a quarter of the draws of grouped attention, indexers that select blocks of keys, in some layers or all. As
/// above, all are taken where layouts round differently.
template <class Dice, class Fits>
void draw_index_blocks(Draw& d, Dice dice, const Fits& fits) {
  const model::ModelConfig before = d.model;
  const plan::Plan plan = d.plan;
  model::ModelConfig& c = d.model;
  if (!c.is_grouped() || c.is_hybrid() || !c.turns() || !dice.one_in(4)) return;
  if (!c.recurs()) {
    c.sliding_window = c.max_window_layers = c.full_attention_interval = c.full_attention_offset = 0;
    c.full_attention_last = c.sinks_in_windows = c.window_chunks = false;
    c.layer_pattern.clear();
    c.window_attention_heads = c.window_key_value_heads = c.window_head_dim = 0;
    c.window_rope_theta = c.window_rotary_factor = 0;
  }
  c.attention_dropout = c.attention_logit_cap = 0;
  c.shared_key_value_layers = c.sharing_intermediate_size = c.no_rope_layer_interval = 0;
  c.rotation_pattern.clear();
  c.keys_are_values = false;
  c.index_blocks = dice.one_in(2) ? model::IndexBlocks::greatest : model::IndexBlocks::mean;
  const bool greatest = c.index_blocks == model::IndexBlocks::greatest;
  c.index_block_size = dice.of({1, 2, 3, 4, 5});
  c.index_topk = d.plan.dtype == Dtype::f64 ? c.index_block_size * dice.of({1, 2, 4}) : kTakesAll;
  c.index_local_blocks = greatest ? dice.of({0, 1}) : 0;
  c.index_n_heads = greatest ? c.num_key_value_heads : 3;
  c.index_head_dim = c.rotary_width() + dice.of({0, 2});
  draw_stage(d, dice);
  const bool by_layer = dice.one_in(2);
  bool chosen = false;
  for (int64_t l = 0; by_layer && l < c.num_hidden_layers; ++l) {
    const char letter = c.is_recurrent(l) ? '*' : "I*S"[dice.of({0, 0, 1, chosen ? 2 : 0})];
    chosen = chosen || letter == 'I';
    c.index_pattern += letter;
  }
  if (d.plan.mesh.cp > 1) d.plan.parallel.context = model::Context::gather;
  d.plan.update.qk_clip = 0;
  if (fits(d)) return;
  d.model = before;
  d.plan = plan;
}

/// In half of the draws of latent attention without positions, an indexer that selects blocks by gated means.
template <class Dice, class Fits>
void draw_gated_blocks(Draw& d, Dice dice, const Fits& fits) {
  const model::ModelConfig before = d.model;
  const plan::Plan plan = d.plan;
  model::ModelConfig& c = d.model;
  if (!c.is_latent() || c.positions != model::Positions::none || !dice.one_in(2)) return;
  if (!c.recurs()) c.sliding_window = c.max_window_layers = c.full_attention_interval = c.full_attention_offset = 0;
  c.attention_dropout = 0;
  c.index_blocks = model::IndexBlocks::gated;
  c.index_block_size = dice.of({1, 2, 3, 5});
  c.index_topk = c.index_block_size * (d.plan.dtype == Dtype::f64 ? dice.of({1, 2, 4}) : kTakesAll);
  c.index_n_heads = 3;
  c.index_head_dim = dice.of({4, 6});
  draw_stage(d, dice);
  // Without positions one kind of token makes all keys alike: then the indexers' loss is what is rounded.
  if (d.token_kinds == 1) c.index_stage = model::IndexStage::off;
  if (d.plan.mesh.cp > 1) d.plan.parallel.context = model::Context::gather;
  d.plan.update.qk_clip = 0;
  if (fits(d)) return;
  d.model = before;
  d.plan = plan;
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
  c.limited_gates = c.experts_limit > 0 || c.mlp_limit > 0;
  model::reset_foreign_keys(c);
  if (d.plan.mesh.cp > 1) d.plan.parallel.context = model::Context::gather;
  d.plan.update.qk_clip = 0;
  d.plan.lora.rank = 0;  // the map of groups of heads is none that an adapter stands beside
  if (c.selects()) draw_stage(d, dice);
  if (fits(d)) return;
  d.model = before;
  d.plan = plan;
}

}  // namespace heddle::parity

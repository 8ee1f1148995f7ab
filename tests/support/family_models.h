// A small model of every family: its first preset with small sizes, and all else as the family has it.
#pragma once

#include <algorithm>

#include "heddle/config/families/family.h"
#include "heddle/model/keys.h"

namespace heddle::test {

/// Every width divides by two and by four; heads share keys and values where the preset's do. A family without a
/// preset is what it takes for granted.
inline model::ModelConfig small_model_of(const config::Family& family) {
  const model::ModelConfig large = family.presets.empty() ? family.base : family.presets[0].model;
  model::ModelConfig c = large;
  const bool has_experts = large.has_experts() || large.is_hybrid(), has_dense = large.first_k_dense_replace > 0;
  c.vocab_size = 48;
  c.hidden_size = 32;
  c.num_hidden_layers = 2;
  c.first_k_dense_replace = !has_experts ? 2 : has_dense ? 1 : 0;
  c.num_nextn_predict_layers = std::min<int64_t>(1, large.num_nextn_predict_layers);
  c.intermediate_size = large.intermediate_size == 4 * large.hidden_size ? 128 : 24;
  c.max_position_embeddings = 64;
  c.num_attention_heads = 4;
  c.num_key_value_heads = large.num_key_value_heads == large.num_attention_heads ? 4 : 2;
  c.head_dim = 8;
  if (c.q_lora_rank > 0) c.q_lora_rank = 12;
  if (c.is_latent()) c.kv_lora_rank = 16, c.qk_nope_head_dim = 8, c.qk_rope_head_dim = 4, c.v_head_dim = 6;
  if (c.is_latent() && large.qk_rope_head_dim == 0) c.qk_rope_head_dim = 0;
  if (c.selects()) c.index_topk = 5, c.index_n_heads = 2, c.index_head_dim = 6;
  if (c.selects_blocks()) c.index_topk = 4, c.index_block_size = 2;
  if (c.sliding_window > 0) c.sliding_window = 5;
  if (family.model_type == "laguna") {
    c.max_window_layers = 1;  // as its files of two layers are read, the first of them without a window
    c.full_attention_interval = c.full_attention_offset = 0;
  }
  if (c.rope_scaling) c.rope_scaling->original_max_position_embeddings = 32;
  c.embedding_dropout = c.residual_dropout = c.attention_dropout = 0;
  if (c.value_head_dim > 0) c.value_head_dim = 6;
  if (c.window_attention_heads > 0) c.window_attention_heads = 8;
  if (c.window_kv_lora_rank > 0) c.window_kv_lora_rank = 10;
  if (c.window_qk_nope_head_dim > 0) c.window_qk_nope_head_dim = 12;
  if (c.gated_norm_rank > 0) c.gated_norm_rank = 6;
  if (c.query_scale_beta > 0) {
    c.query_scale_length = 4;
    if (c.rope_scaling) c.rope_scaling->original_max_position_embeddings = 4;
  }
  if (c.experts_limit > 0)
    c.experts_limit = 0.5, c.experts_limit_layer = std::min<int64_t>(1, large.experts_limit_layer);
  if (c.mlp_limit > 0) c.mlp_limit = 0.5, c.mlp_limit_layer = std::min<int64_t>(1, large.mlp_limit_layer);
  if (c.mlp_limit_last > 0) c.mlp_limit_layer = 0, c.mlp_limit_last = 0.25, c.mlp_limit_last_layer = 1;
  if (c.recurs()) {
    c.full_attention_interval = c.is_hybrid() || !c.layer_pattern.empty() || c.recurrence_beside_attention ? 0 : 2;
    c.full_attention_last = false;
    c.num_key_value_heads = c.linear_num_key_heads = 4, c.linear_num_value_heads = 8;
    c.linear_key_head_dim = 6, c.linear_value_head_dim = 4;
    if (c.recurrence != model::Recurrence::gated_delta && c.recurrence != model::Recurrence::mamba2)
      c.linear_num_value_heads = 4, c.linear_value_head_dim = 6;
    if (!c.has_states()) model::reset_foreign_keys(c);
  }
  if (!c.mlp_pattern.empty()) c.mlp_pattern = "-E";
  if (!c.rotation_pattern.empty()) c.rotation_pattern = "R-";
  if (!c.layer_pattern.empty() && c.recurs() && c.sliding_window > 0) {
    c.layer_pattern = "MW*";
    c.num_hidden_layers = 3;
  } else if (!c.layer_pattern.empty()) {
    c.layer_pattern = c.recurs() ? "M*" : "W*";
  }
  if (c.has_gated_streams()) {
    c.index_topk = 4, c.index_n_heads = 2, c.index_head_dim = 8, c.index_block_size = 2;
    c.index_blocks = model::IndexBlocks::mean, c.index_stage = model::IndexStage::off;
    c.hyper_connections = 2, c.hyper_connections_rank = 6, c.linear_sigmoid_gate = true;
    c.ngram_layers = "1", c.ngram_heads = 2, c.ngram_vocab_size = 5, c.ngram_vocab_multiple = 4, c.ngram_parts = 3;
    c.ngram_end_token = 2;
  }
  c.num_hash_layers = std::min<int64_t>(1, large.num_hash_layers);
  if (c.is_compressed()) {
    c.intermediate_size = large.intermediate_size;  // of no layer
    c.compression_pattern = "SH";
    c.sparse_rate = 2, c.heavy_rate = 5, c.qk_rope_head_dim = 4, c.o_groups = 2, c.o_lora_rank = 6;
    c.index_topk = 3, c.index_n_heads = 2, c.index_head_dim = 6;
  }
  if (c.is_hybrid()) c.hybrid_override_pattern = "M*E-", c.num_hidden_layers = 4;
  const auto derived = [&] {
    if (family.derive != nullptr) family.derive(c);
    return c;
  };
  if (!has_experts) return derived();
  if (c.shared_intermediate_size > 0) c.shared_intermediate_size = 20;
  c.n_routed_experts = 8;
  c.num_experts_per_tok = c.gates_on_inputs ? 1 : 2;
  c.n_group = large.n_group > 1 ? 2 : 1;
  c.topk_group = 1;
  // Families without dense layers call the experts' width that of the dense ones.
  c.moe_intermediate_size = large.moe_intermediate_size == large.intermediate_size ? c.intermediate_size : 12;
  return derived();
}

}  // namespace heddle::test

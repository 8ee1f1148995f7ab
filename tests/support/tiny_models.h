// The models that tests build programs of and train for a step or two. A test that needs another size says which.
#pragma once

#include "heddle/model/model_config.h"

namespace heddle::test {

/// Two layers with experts, latent attention: no two widths are the same where that can be.
inline model::ModelConfig tiny_model() {
  model::ModelConfig c;
  c.vocab_size = 40;
  c.hidden_size = 16;
  c.num_hidden_layers = 2;
  c.first_k_dense_replace = 0;
  c.intermediate_size = 24;
  c.num_attention_heads = 2;
  c.kv_lora_rank = 8;
  c.qk_nope_head_dim = 6;
  c.qk_rope_head_dim = 4;
  c.v_head_dim = 6;
  c.n_routed_experts = 4;
  c.num_experts_per_tok = 2;
  c.moe_intermediate_size = 10;
  return c;
}

/// The same with attention, router and experts as Qwen3 has them.
inline model::ModelConfig tiny_grouped_model() {
  model::ModelConfig c = tiny_model();
  c.attention = model::ModelConfig::Attention::grouped;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 6;
  c.rope_interleave = false;
  c.sigmoid_scores = c.topk_bias = false;
  c.n_shared_experts = 0;
  return c;
}

/// Eight experts of the tiny model, and both losses of the router.
inline model::ModelConfig tiny_balanced_model() {
  model::ModelConfig c = tiny_model();
  c.vocab_size = 48;
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 3;
  c.moe_intermediate_size = 12;
  c.sequence_aux_loss_alpha = 0.01;
  c.z_loss_weight = 0.001;
  return c;
}

/// Three layers of which every width divides by each small number of ranks.
inline model::ModelConfig divisible_model() {
  model::ModelConfig c = tiny_model();
  c.vocab_size = 48;
  c.hidden_size = 24;
  c.num_hidden_layers = 3;
  c.num_attention_heads = 12;
  c.qk_nope_head_dim = 4;
  c.v_head_dim = 4;
  c.n_routed_experts = 12;
  c.moe_intermediate_size = 12;
  return c;
}

/// Large enough to learn: one dense layer and one with experts.
inline model::ModelConfig small_model() {
  model::ModelConfig c;
  c.vocab_size = 64;
  c.hidden_size = 32;
  c.num_hidden_layers = 2;
  c.first_k_dense_replace = 1;
  c.intermediate_size = 64;
  c.num_attention_heads = 2;
  c.kv_lora_rank = 16;
  c.qk_nope_head_dim = 8;
  c.qk_rope_head_dim = 8;
  c.v_head_dim = 8;
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 2;
  c.moe_intermediate_size = 32;
  return c;
}

}  // namespace heddle::test

// Published models that benches take layers of, as their configurations have them.
#pragma once

#include <cstdint>

#include "heddle/model/model_config.h"

namespace heddle::bench {

/// DeepSeek-V3 (arXiv 2412.19437) for sequences of so many tokens.
inline model::ModelConfig deepseek_v3(int64_t tokens) {
  model::ModelConfig c;
  c.vocab_size = 129280;
  c.hidden_size = 7168;
  c.num_hidden_layers = 61;
  c.first_k_dense_replace = 3;
  c.intermediate_size = 18432;
  c.num_attention_heads = 128;
  c.q_lora_rank = 1536;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 128;
  c.qk_rope_head_dim = 64;
  c.v_head_dim = 128;
  c.n_routed_experts = 256;
  c.num_experts_per_tok = 8;
  c.n_shared_experts = 1;
  c.moe_intermediate_size = 2048;
  c.max_position_embeddings = tokens;
  return c;
}

/// Qwen3-235B-A22B (arXiv 2505.09388).
inline model::ModelConfig qwen3_235b(int64_t tokens) {
  model::ModelConfig c;
  c.attention = model::ModelConfig::Attention::grouped;
  c.vocab_size = 151936;
  c.hidden_size = 4096;
  c.num_hidden_layers = 94;
  c.first_k_dense_replace = 0;
  c.intermediate_size = 12288;
  c.num_attention_heads = 64;
  c.num_key_value_heads = 4;
  c.head_dim = 128;
  c.qk_norm = true;
  c.n_routed_experts = 128;
  c.num_experts_per_tok = 8;
  c.n_shared_experts = 0;
  c.moe_intermediate_size = 1536;
  c.sigmoid_scores = false;
  c.topk_bias = false;
  c.max_position_embeddings = tokens;
  return c;
}

/// Four of the 80 layers of LLaMA-2-70B (arXiv 2307.09288).
inline model::ModelConfig layers_of_llama_2_70b(int64_t tokens) {
  model::ModelConfig c;
  c.attention = model::ModelConfig::Attention::grouped;
  c.vocab_size = 32000;
  c.hidden_size = 8192;
  c.num_hidden_layers = c.first_k_dense_replace = 4;
  c.intermediate_size = 28672;
  c.num_attention_heads = 64;
  c.num_key_value_heads = 8;
  c.head_dim = 128;
  c.max_position_embeddings = tokens;
  return c;
}

}  // namespace heddle::bench

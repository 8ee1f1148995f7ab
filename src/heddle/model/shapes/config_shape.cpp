#include "heddle/model/shapes/config_shape.h"

#include <algorithm>

namespace heddle::model {

Shape shape_of(const ModelConfig& c, std::string name) {
  Shape s;
  s.name = std::move(name);
  s.hidden = c.hidden_size;
  s.layers = c.num_hidden_layers;
  s.heads = c.num_attention_heads;
  s.vocab = c.vocab_size;
  s.ffn = c.intermediate_size;
  s.tied = c.tie_word_embeddings;
  s.mtp = c.num_nextn_predict_layers;
  s.ffn_bias = c.mlp_bias;
  s.gated = c.activation == Activation::swiglu;
  s.norm_bias = c.norm == Norm::layer;
  if (!c.turns()) s.positions = c.max_position_embeddings;
  if (c.is_latent()) {
    s.kv_heads = s.heads;
    s.head_dim = c.qk_head_dim();
    s.mla = {c.q_lora_rank, c.kv_lora_rank, c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim};
  } else {
    s.kv_heads = c.num_key_value_heads;
    s.head_dim = c.head_dim;
    s.qk_norm = c.qk_norm;
    s.qkv_bias = c.attention_bias != AttentionBias::none;
    s.out_bias = c.attention_bias == AttentionBias::all;
    s.sinks = c.attention_sinks;
  }
  if (!c.has_experts()) return s;
  s.dense_layers = std::min(c.first_k_dense_replace, c.num_hidden_layers);
  s.moe.count = c.n_routed_experts;
  s.moe.chosen = c.num_experts_per_tok;
  s.moe.ffn = c.moe_intermediate_size;
  s.moe.shared_ffn = c.n_shared_experts * c.moe_intermediate_size;
  s.moe.router_bias = c.topk_bias || c.router_bias;
  s.moe.bias = c.experts_bias;
  if (c.n_group > 1) s.moe.most_nodes = c.topk_group, s.moe.groups = c.n_group;
  s.moe.gate_scale = c.routed_scaling_factor;
  s.moe.normed_gates = c.norm_topk_prob;
  return s;
}

}  // namespace heddle::model

#include "bench/support/shape.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"

namespace heddle::bench {

Shape read_shape(const std::string& path) {
  std::ifstream file(path);
  if (!file) config_error("cannot read the shape file '{}'", path);
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(file);
  } catch (const nlohmann::json::exception& error) {
    config_error("{}: {}", path, error.what());
  }
  Shape shape;
  model::ModelConfig& m = shape.model;
  const auto read = [&](const char* key, auto& into) {
    if (json.contains(key) && !json.at(key).is_null()) json.at(key).get_to(into);
  };
  read("hidden_size", m.hidden_size);
  read("num_hidden_layers", m.num_hidden_layers);
  read("num_attention_heads", m.num_attention_heads);
  read("qk_nope_head_dim", m.qk_nope_head_dim);
  read("qk_rope_head_dim", m.qk_rope_head_dim);
  read("v_head_dim", m.v_head_dim);
  read("kv_lora_rank", m.kv_lora_rank);
  read("q_lora_rank", m.q_lora_rank);
  read("n_routed_experts", m.n_routed_experts);
  read("num_experts_per_tok", m.num_experts_per_tok);
  read("moe_intermediate_size", m.moe_intermediate_size);
  read("intermediate_size", m.intermediate_size);
  read("n_shared_experts", m.n_shared_experts);
  read("first_k_dense_replace", m.first_k_dense_replace);
  read("routed_scaling_factor", m.routed_scaling_factor);
  read("norm_topk_prob", m.norm_topk_prob);
  read("n_group", m.n_group);
  read("topk_group", m.topk_group);
  read("rope_theta", m.rope_theta);
  read("rms_norm_eps", m.rms_norm_eps);
  read("initializer_range", m.initializer_range);
  read("vocab_size", m.vocab_size);
  read("sequence", shape.sequence);
  read("microbatch", shape.sequences);
  read("microbatches", shape.microbatches);
  m.max_position_embeddings = std::max(m.max_position_embeddings, shape.sequence);
  return shape;
}

}  // namespace heddle::bench

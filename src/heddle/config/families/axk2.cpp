// A.X-K2: DeepSeek-V3.2 whose norms are gated by narrow MLPs. One projection makes queries and the gate of
// attention's output from the latent of queries, ahead of its norm and behind it.
//
// Sources: AXK2Config of Transformers 5.24, gone through key by key, whose standard sizes are those of
// A.X-K2-Light.
#include "heddle/base/error.h"
#include "heddle/config/families/family.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

void rewrite_axk2(Json& root, const std::string& place) {
  join_names(root, place, {{"num_local_experts", "n_routed_experts"}});
  const bool grouped = !root.value("n_group", Json()).is_null();
  if (grouped == root.value("topk_group", Json()).is_null()) {
    config_error("{}: 'n_group' is {} and 'topk_group' {}: both are numbers, or both null", place,
                 formats::shown(root.value("n_group", Json())), formats::shown(root.value("topk_group", Json())));
  }
  const Json layers = root.value("num_hidden_layers", Json()), dense = root.value("first_k_dense_replace", Json(1));
  constexpr int64_t kMost = 4096;
  if (root.value("mlp_layer_types", Json()).is_null() && layers.is_number_integer() && dense.is_number_integer() &&
      layers <= kMost) {
    Json types = Json::array();
    for (int64_t l = 0; l < layers.get<int64_t>(); ++l)
      types.push_back(l < dense.get<int64_t>() ? "dense" : "sparse");
    root["mlp_layer_types"] = std::move(types);
  }
}

ModelConfig light() {
  ModelConfig c;
  c.vocab_size = 163840;
  c.hidden_size = 2048;
  c.num_hidden_layers = 48;
  c.intermediate_size = 5120;
  c.max_position_embeddings = 131072;
  c.num_attention_heads = 32;
  c.q_lora_rank = 384;
  c.kv_lora_rank = 128;
  c.qk_nope_head_dim = 64;
  c.qk_rope_head_dim = 32;
  c.v_head_dim = 64;
  c.raw_latent_of_queries = true;
  c.attention_gate = model::AttentionGate::element;
  c.gated_norm_rank = 16;
  c.index_topk = 2048;
  c.index_n_heads = 16;
  c.index_head_dim = 128;
  c.n_routed_experts = 128;
  c.num_experts_per_tok = 8;
  c.moe_intermediate_size = 512;
  c.routed_scaling_factor = 2.5;
  c.bias_update_rate = 0.001;
  return c;
}

}  // namespace

Family axk2() {
  Family f = deepseek_v32();
  f.architecture = "AXK2ForCausalLM";
  f.model_type = "axk2";
  f.base.raw_latent_of_queries = true;
  f.base.attention_gate = model::AttentionGate::element;
  f.said.insert(f.said.end(), {"raw_latent_of_queries", "attention_gate"});
  replace_keys(f, {key("n_group", "n_group", 1), key("topk_group", "topk_group", 1),
                   key("index_n_heads", "index_n_heads", 16)});
  for (PublishedKey& each : f.keys) {
    if (each.name == "first_k_dense_replace") each = mlp_layer_types_key(1);
  }
  f.keys.push_back(key("gated_norm_rank", "gated_norm_rank", 16));
  std::erase_if(f.only, [](const Only& each) { return each.name == "mlp_layer_types"; });
  f.read_besides.push_back("first_k_dense_replace");
  f.rewrite = rewrite_axk2;
  f.holds = [](const ModelConfig& c) {
    return c.is_latent() && c.selects() && c.raw_latent_of_queries && c.gated_norm_rank > 0 && !c.is_hybrid() &&
           c.rope_interleave;
  };
  f.presets = {{"a.x-k2-light", light()}};
  return f;
}

}  // namespace heddle::config

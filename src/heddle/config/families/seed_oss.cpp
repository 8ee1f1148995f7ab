// Seed-OSS, dense: LLaMA with biases on queries, keys and values.
//
// Sources: SeedOssConfig of Transformers 5, gone through key by key; the config.json file released with
// Seed-OSS-36B-Instruct.
#include "heddle/config/families/grouped_keys.h"

namespace heddle::config {

namespace {

model::ModelConfig large() {
  model::ModelConfig c = grouped_base();
  c.vocab_size = 155136;
  c.hidden_size = 5120;
  c.num_hidden_layers = c.first_k_dense_replace = 64;
  c.intermediate_size = 27648;
  c.num_attention_heads = 80;
  c.num_key_value_heads = 8;
  c.head_dim = 128;
  c.attention_bias = model::AttentionBias::qkv;
  c.rope_theta = 1e7;
  c.max_position_embeddings = 524288;
  return c;
}

}  // namespace

Family seed_oss() {
  Family f;
  f.architecture = "SeedOssForCausalLM";
  f.model_type = "seed_oss";
  f.base = grouped_base();
  f.keys = grouped_keys(1e-6);
  for (PublishedKey& each : f.keys) {  // Transformers has defaults of its own for these: they must be there
    if (each.name == "head_dim" || each.name == "num_key_value_heads") each = key(each.name.c_str());
  }
  for (PublishedKey& each : f.keys) {
    if (each.name == "attention_dropout") each = key("attention_dropout", "attention_dropout", 0.1);
  }
  f.keys.push_back(key("residual_dropout", "residual_dropout", 0.1));
  f.keys.push_back(attention_bias_key(model::AttentionBias::qkv, true));
  f.only = {off("attention_out_bias", "biases of the output alone are not built")};
  f.holds = [](const model::ModelConfig&) { return false; };  // it is written as Qwen2
  f.derive = make_dense;
  f.presets = {{"seed-oss-36b", large()}};
  return f;
}

}  // namespace heddle::config

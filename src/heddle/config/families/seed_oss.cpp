// Seed-OSS, dense: LLaMA with biases on queries, keys and values.
//
// Sources: SeedOssConfig of Transformers 5, gone through key by key; the config.json file released with
// Seed-OSS-36B-Instruct.
#include "heddle/config/families/grouped_keys.h"

namespace heddle::config {

namespace {

model::ModelConfig large() {
  model::ModelConfig c = sized(grouped_base(), {155136, 5120, 64, 27648, 80, 8, 524288, 128});
  make_dense(c);
  c.attention_bias = model::AttentionBias::qkv;
  c.rope_theta = 1e7;
  return c;
}

}  // namespace

Family seed_oss() {
  Family f = grouped_family("SeedOssForCausalLM", "seed_oss", 1e-6);
  replace_keys(f, {key("attention_dropout", "attention_dropout", 0.1)});
  f.keys.push_back(key("residual_dropout", "residual_dropout", 0.1));
  f.keys.push_back(attention_bias_key(model::AttentionBias::qkv, true));
  f.only = {off("attention_out_bias", "biases of the output alone are not built")};
  f.holds = [](const model::ModelConfig&) { return false; };  // it is written as Qwen2
  f.derive = make_dense;
  f.presets = {{"seed-oss-36b", large()}};
  return f;
}

}  // namespace heddle::config

// Models by name.
#include "heddle/base/error.h"
#include "heddle/config/run_config.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

ModelConfig demo() {
  ModelConfig c;
  c.num_nextn_predict_layers = 1;
  c.sequence_aux_loss_alpha = 1e-4;
  return c;
}

// DeepSeek-AI, arXiv 2405.04434, appendix B.
ModelConfig deepseek_v2_lite() {
  ModelConfig c;
  c.vocab_size = 102400;
  c.hidden_size = 2048;
  c.num_hidden_layers = 27;
  c.intermediate_size = 10944;
  c.max_position_embeddings = 163840;
  c.num_attention_heads = 16;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 128;
  c.qk_rope_head_dim = 64;
  c.v_head_dim = 128;
  c.rope_scaling = model::Yarn{.factor = 40, .mscale = 0.707, .mscale_all_dim = 0.707};
  c.n_routed_experts = 64;
  c.num_experts_per_tok = 6;
  c.n_shared_experts = 2;
  c.moe_intermediate_size = 1408;
  c.norm_topk_prob = false;
  c.sigmoid_scores = false;
  c.topk_bias = false;
  c.sequence_aux_loss_alpha = 0.001;
  return c;
}

// DeepSeek-AI, arXiv 2412.19437, section 4.2.
ModelConfig deepseek_v3() {
  ModelConfig c;
  c.vocab_size = 129280;
  c.hidden_size = 7168;
  c.num_hidden_layers = 61;
  c.intermediate_size = 18432;
  c.first_k_dense_replace = 3;
  c.max_position_embeddings = 163840;
  c.num_attention_heads = 128;
  c.q_lora_rank = 1536;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 128;
  c.qk_rope_head_dim = 64;
  c.v_head_dim = 128;
  c.rope_scaling = model::Yarn{.factor = 40, .mscale = 1, .mscale_all_dim = 1};
  c.n_routed_experts = 256;
  c.num_experts_per_tok = 8;
  c.moe_intermediate_size = 2048;
  c.n_group = 8;
  c.topk_group = 4;
  c.routed_scaling_factor = 2.5;
  c.num_nextn_predict_layers = 1;
  c.sequence_aux_loss_alpha = 1e-4;
  c.bias_update_rate = 0.001;  // for all but the last of its steps
  return c;
}

struct Preset {
  const char* name;
  ModelConfig (*make)();
};
constexpr Preset kPresets[] = {
    {"demo", demo}, {"deepseek-v2-lite", deepseek_v2_lite}, {"deepseek-v3", deepseek_v3}};

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

ModelConfig preset(std::string_view name) {
  for (const Preset& p : kPresets) {
    if (p.name == name) return p.make();
  }
  config_error("no preset '{}', accepted: {}", name, fmt::join(preset_names(), ", "));
}

}  // namespace heddle::config

#include "heddle/model/model_config.h"

#include <cmath>

#include "heddle/base/error.h"
#include "heddle/model/rope_table.h"

namespace heddle::model {

double Yarn::rotary_scale() const {
  if (attention_factor != 0) return attention_factor;
  if (mscale == 0 || mscale_all_dim == 0) return yarn_mscale(factor, 1);
  return yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim);
}

double ModelConfig::softmax_scale() const {
  double scale = 1.0 / std::sqrt(static_cast<double>(qk_head_dim()));
  if (rope_scaling && rope_scaling->mscale_all_dim != 0) {
    const double m = yarn_mscale(rope_scaling->factor, rope_scaling->mscale_all_dim);
    scale *= m * m;
  }
  return scale;
}

namespace {

void validate_rope(const ModelConfig& c) {
  const auto within = [](const char* key, double value, double least, double most) {
    if (!(value >= least && value <= most)) {
      config_error("model.{} is {}, must be from {} to {}", key, value, least, most);
    }
  };
  within("rope_theta", c.rope_theta, 1, 1e12);
  if (!c.rope_scaling) return;
  const Yarn& y = *c.rope_scaling;
  within("rope_scaling.factor", y.factor, 1, 1e9);
  within("rope_scaling.original_max_position_embeddings", y.original_max_position_embeddings, 1, 1e9);
  within("rope_scaling.beta_fast", y.beta_fast, 1e-9, 1e9);
  within("rope_scaling.beta_slow", y.beta_slow, 1e-9, 1e9);
  within("rope_scaling.mscale", y.mscale, 0, 1e9);
  within("rope_scaling.mscale_all_dim", y.mscale_all_dim, 0, 1e9);
  within("rope_scaling.attention_factor", y.attention_factor, 0, 1e9);
  if (c.rope_theta == 1) config_error("model.rope_theta is 1, must be more where model.rope_scaling stretches it");
}

}  // namespace

void validate(const ModelConfig& c) {
  const auto positive = [](const char* key, int64_t value) {
    if (value < 1) config_error("model.{} is {}, must be at least 1", key, value);
  };
  positive("vocab_size", c.vocab_size);
  positive("hidden_size", c.hidden_size);
  positive("num_hidden_layers", c.num_hidden_layers);
  positive("intermediate_size", c.intermediate_size);
  positive("num_attention_heads", c.num_attention_heads);
  positive("kv_lora_rank", c.kv_lora_rank);
  positive("qk_nope_head_dim", c.qk_nope_head_dim);
  positive("qk_rope_head_dim", c.qk_rope_head_dim);
  positive("v_head_dim", c.v_head_dim);
  positive("max_position_embeddings", c.max_position_embeddings);
  if (c.qk_rope_head_dim % 2 != 0) {
    config_error("model.qk_rope_head_dim is {}, must be even", c.qk_rope_head_dim);
  }
  if (c.q_lora_rank < 0) config_error("model.q_lora_rank is {}, must be 0 (off) or more", c.q_lora_rank);
  if (c.first_k_dense_replace < 0) {
    config_error("model.first_k_dense_replace is {}, must be 0 or more", c.first_k_dense_replace);
  }
  if (c.num_nextn_predict_layers < 0) {
    config_error("model.num_nextn_predict_layers is {}, must be 0 or more", c.num_nextn_predict_layers);
  }
  if (!(c.rms_norm_eps >= 0 && c.rms_norm_eps <= 1)) {
    config_error("model.rms_norm_eps is {}, must be from 0 to 1", c.rms_norm_eps);
  }
  validate_rope(c);
  if (!c.is_moe(c.num_hidden_layers - 1) && !(c.num_nextn_predict_layers > 0 && c.is_moe(c.num_hidden_layers)))
    return;
  positive("n_routed_experts", c.n_routed_experts);
  positive("num_experts_per_tok", c.num_experts_per_tok);
  positive("moe_intermediate_size", c.moe_intermediate_size);
  positive("n_group", c.n_group);
  positive("topk_group", c.topk_group);
  if (c.n_shared_experts < 0) config_error("model.n_shared_experts is {}, must be 0 or more", c.n_shared_experts);
  if (c.num_experts_per_tok > c.n_routed_experts) {
    config_error("model.num_experts_per_tok is {}, more than model.n_routed_experts ({})", c.num_experts_per_tok,
                 c.n_routed_experts);
  }
  if (c.n_routed_experts % c.n_group != 0) {
    config_error("model.n_routed_experts ({}) is not a multiple of model.n_group ({})", c.n_routed_experts,
                 c.n_group);
  }
  if (c.topk_group > c.n_group) {
    config_error("model.topk_group is {}, more than model.n_group ({})", c.topk_group, c.n_group);
  }
  const int64_t reachable = c.topk_group * (c.n_routed_experts / c.n_group);
  if (c.num_experts_per_tok > reachable) {
    config_error("model.num_experts_per_tok is {}, more than the {} experts of model.topk_group = {} groups",
                 c.num_experts_per_tok, reachable, c.topk_group);
  }
}

}  // namespace heddle::model

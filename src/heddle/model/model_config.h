// What a model is: sizes and constants, named as in the Hugging Face config.json of the DeepSeek-V3 family (of
// Qwen3, LLaMA or GLM-4.5, where that has no name), plus the constants of its training losses. model/keys.h has
// what each means.
#pragma once

#include <cstdint>
#include <optional>

#include "heddle/base/words.h"

namespace heddle::model {

/// How rotary frequencies are stretched for longer contexts.
enum class RopeType : uint8_t {
  yarn,    // Peng et al., arXiv 2309.00071
  linear,  // all by one factor
  llama3,  // LLaMA 3.1 (arXiv 2407.21783): long waves by the factor, short ones not at all
};
constexpr auto words_of(RopeType) {
  return std::to_array<Word<RopeType>>(
      {{RopeType::yarn, "yarn"}, {RopeType::linear, "linear"}, {RopeType::llama3, "llama3"}});
}

/// Which of attention's linear maps add a bias.
enum class AttentionBias : uint8_t {
  none,
  qkv,  // those of queries, keys and values
  all,  // these and that of the output
};
constexpr auto words_of(AttentionBias) {
  return std::to_array<Word<AttentionBias>>(
      {{AttentionBias::none, "none"}, {AttentionBias::qkv, "qkv"}, {AttentionBias::all, "all"}});
}

/// What the norms around layers are, and that before the head.
enum class Norm : uint8_t {
  rms,
  layer,  // with a mean that is taken off and a bias (Ba et al., arXiv 1607.06450)
};
constexpr auto words_of(Norm) { return std::to_array<Word<Norm>>({{Norm::rms, "rms"}, {Norm::layer, "layer"}}); }

/// Whence a model knows where a token stands.
enum class Positions : uint8_t {
  rotary,   // queries and keys are turned
  learned,  // a row of a table is added to its embedding
};
constexpr auto words_of(Positions) {
  return std::to_array<Word<Positions>>({{Positions::rotary, "rotary"}, {Positions::learned, "learned"}});
}

/// Of the dense layers' MLPs: with a gate, or of one product.
enum class Activation : uint8_t {
  swiglu,
  gelu,       // by the error function
  gelu_tanh,  // by its approximation with a hyperbolic tangent
};
constexpr auto words_of(Activation) {
  return std::to_array<Word<Activation>>(
      {{Activation::swiglu, "swiglu"}, {Activation::gelu, "gelu"}, {Activation::gelu_tanh, "gelu_tanh"}});
}

/// Each key means what it means to Transformers (modeling_rope_utils.py).
struct RopeScaling {
  double factor = 1;
  double original_max_position_embeddings = 4096;
  double beta_fast = 32;
  double beta_slow = 1;
  double mscale = 0;            // 0: not given
  double mscale_all_dim = 0;    // 0: not given
  double attention_factor = 0;  // 0: follows from the mscales
  bool truncate = true;         // the ramp's ends are whole pairs
  RopeType type = RopeType::yarn;
  // Of llama3: waves of more than original ÷ low_freq_factor positions are long, of less than original ÷
  // high_freq_factor short.
  double low_freq_factor = 1, high_freq_factor = 4;

  /// Of YaRN; others multiply by 1. What cosines and sines are multiplied by: attention_factor, else
  /// m(mscale)/m(mscale_all_dim) where both are given, else m(1); m(x) = 0.1·x·ln(factor) + 1.
  double rotary_scale() const;
  bool operator==(const RopeScaling&) const = default;
};

/// Of the norms of attention's latents, whatever rms_norm_eps is: so the released models were trained.
inline constexpr double kLatentNormEpsilon = 1e-6;

/// How the balancing biases move at the end of a step.
enum class BiasBalance : uint8_t {
  sign,      // by the rate, against the sign of the load's difference from the mean
  falling,   // likewise, by a rate that is high until the warm-up ends and falls from there
  quantile,  // to where the scores of the step would have had every expert chosen as often
};
constexpr auto words_of(BiasBalance) {
  return std::to_array<Word<BiasBalance>>(
      {{BiasBalance::sign, "sign"}, {BiasBalance::falling, "falling"}, {BiasBalance::quantile, "quantile"}});
}

struct ModelConfig {
  int64_t vocab_size = 8192;
  int64_t hidden_size = 256;
  int64_t num_hidden_layers = 4;
  int64_t intermediate_size = 768;  // of dense layers
  int64_t first_k_dense_replace = 1;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  int64_t max_position_embeddings = 4096;
  Norm norm = Norm::rms;
  Positions positions = Positions::rotary;
  Activation activation = Activation::swiglu;

  enum class Attention : uint8_t { latent, grouped } attention = Attention::latent;
  int64_t num_attention_heads = 4;

  // Multi-head latent attention
  int64_t q_lora_rank = 0;  // 0: queries are projected directly
  int64_t kv_lora_rank = 64;
  int64_t qk_nope_head_dim = 32;
  int64_t qk_rope_head_dim = 16;
  int64_t v_head_dim = 32;

  // Grouped attention: heads share keys and values
  int64_t num_key_value_heads = 4;
  int64_t head_dim = 64;
  bool qk_norm = true;               // queries and keys are normed head by head
  double partial_rotary_factor = 1;  // of a head, from its first element on, this part has positions
  AttentionBias attention_bias = AttentionBias::none;
  bool mlp_bias = false;  // of dense layers

  // Clamped SwiGLU: (min(g, l) · σ(α · min(g, l))) · (u within ±l, + 1)
  double swiglu_limit = 0;      // l; 0: plain SwiGLU
  double swiglu_alpha = 1.702;  // α

  bool attention_sinks = false;  // a learned logit a head, without a value

  // Windows of attention: which layers have them
  int64_t sliding_window = 0;           // tokens that a query sees, its own among them; 0: all before it
  int64_t max_window_layers = 0;        // so many layers from the first on have none
  int64_t full_attention_interval = 0;  // every so many-th layer has none; 0: no such

  double rope_theta = 10000;
  bool rope_interleave = true;
  std::optional<RopeScaling> rope_scaling;

  // Mixture of experts
  int64_t n_routed_experts = 16;
  int64_t num_experts_per_tok = 4;
  int64_t n_shared_experts = 1;
  int64_t moe_intermediate_size = 128;
  int64_t n_group = 1;
  int64_t topk_group = 1;
  bool norm_topk_prob = true;
  bool sigmoid_scores = true;  // else softmax
  bool topk_bias = true;       // balance by a bias on the choice (aux-loss-free)
  double routed_scaling_factor = 1;
  bool router_bias = false;   // of its logits, trained
  bool experts_bias = false;  // of both linear maps of each routed expert

  // Multi-token prediction
  int64_t num_nextn_predict_layers = 0;

  // Dropout while training: the part of the elements that is put to zero
  double embedding_dropout = 0;  // of the embedded tokens
  double residual_dropout = 0;   // of what attention and MLP add to the residual stream
  double attention_dropout = 0;  // of attention's probabilities

  // Training losses
  double mtp_loss_weight = 0.3;
  double sequence_aux_loss_alpha = 0;  // 0: off
  double z_loss_weight = 0;            // 0: off
  BiasBalance bias_balance = BiasBalance::sign;
  std::optional<double> bias_update_rate;  // none: by the length of the run (train/bias_rate)

  /// Tokens that a query of the layer sees; 0: all up to its own.
  int64_t window_of(int64_t layer) const {
    const bool full =
        layer < max_window_layers || (full_attention_interval > 0 && (layer + 1) % full_attention_interval == 0);
    return full ? 0 : sliding_window;
  }
  bool is_moe(int64_t layer) const { return layer >= first_k_dense_replace; }
  bool has_experts() const {
    return is_moe(num_hidden_layers - 1) || (num_nextn_predict_layers > 0 && is_moe(num_hidden_layers));
  }
  bool turns() const { return positions == Positions::rotary; }
  bool is_latent() const { return attention == Attention::latent; }
  int64_t qk_head_dim() const { return is_latent() ? qk_nope_head_dim + qk_rope_head_dim : head_dim; }
  /// Of the elements of a head that have positions: its last ones, or, of grouped attention, its first.
  int64_t rotary_width() const {
    return is_latent() ? qk_rope_head_dim
                       : static_cast<int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
  }
  double softmax_scale() const;
  /// Of the loss of each depth of multi-token prediction; only where there is one.
  double depth_loss_weight() const { return mtp_loss_weight / static_cast<double>(num_nextn_predict_layers); }
  /// The chosen gates are divided by their sum, which is one gate: they are 1 whatever the router says, and it
  /// learns nothing from the loss.
  bool router_is_without_gradient() const {
    return norm_topk_prob && num_experts_per_tok == 1 &&
           (is_moe(num_hidden_layers - 1) || num_nextn_predict_layers > 0);
  }
  bool operator==(const ModelConfig&) const = default;
};

/// ConfigError naming the key when a value is out of its bounds (model/keys.h) or a size is impossible (top-k >
/// experts, odd rotary width, …).
void validate(const ModelConfig& config);

}  // namespace heddle::model

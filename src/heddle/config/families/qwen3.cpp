// Qwen3, dense and with experts: grouped attention whose queries and keys are normed head by head.
//
// Sources: Qwen3Config and Qwen3MoeConfig of Transformers 5, gone through key by key, and the config.json files
// released with Qwen3-0.6B and Qwen3-30B-A3B.
#include "heddle/base/error.h"
#include "heddle/config/families/family.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

// Dense layers come first; Transformers can have them anywhere.
void read_dense_layers(const JsonKeys& keys, ModelConfig& c) {
  c.first_k_dense_replace = 0;
  const Json* layers = keys.find("mlp_only_layers");
  if (layers == nullptr) return;
  const bool list = layers->is_array();
  for (const Json& layer : *layers) {
    if (!list || layer != c.first_k_dense_replace) {
      config_error("{}: 'mlp_only_layers' is {}: the first layers may be dense, in order, and no others",
                   keys.place(), formats::shown(*layers));
    }
    ++c.first_k_dense_replace;
  }
}

Written write_dense_layers(const ModelConfig& c) {
  Written layers = Written::array();
  for (int64_t l = 0; l < std::min(c.first_k_dense_replace, c.num_hidden_layers); ++l) layers.push_back(l);
  return layers;
}

// The balance loss of Transformers is one of the whole batch, and off unless asked for.
void adopt(Json& root, const std::string& place, std::vector<std::string>* warnings) {
  root.erase("quantization_config");  // of the released weights, which are not read here
  if (root.value("output_router_logits", Json()) != true || warnings == nullptr) return;
  const Json loss = root.value("router_aux_loss_coef", Json(0.001));
  warnings->push_back(
      fmt::format("{}: 'router_aux_loss_coef' is {} over the whole batch, which is not built: taken as 0", place,
                  formats::shown(loss)));
}

// Transformers has a second name for one key.
void rename(Json& root, const std::string& place) {
  const Json value = root.value("num_local_experts", Json());
  if (value.is_null()) return;
  Json& known = root["num_experts"];
  if (known.is_null()) known = value;
  if (known != value) {
    config_error("{}: 'num_local_experts' is {} and 'num_experts' {}: they are one key", place,
                 formats::shown(value), formats::shown(known));
  }
}

Family common(const char* architecture, const char* model_type) {
  Family f;
  f.architecture = architecture;
  f.model_type = model_type;
  f.base.attention = ModelConfig::Attention::grouped;
  f.base.rope_interleave = false;
  f.base.n_shared_experts = 0;
  f.base.sigmoid_scores = f.base.topk_bias = false;
  f.keys = {
      key("vocab_size"),
      key("hidden_size"),
      key("num_hidden_layers"),
      key("intermediate_size"),
      fixed("hidden_act", "silu"),
      key("rms_norm_eps", "rms_norm_eps", 1e-6),
      key("initializer_range", "initializer_range", 0.02),
      key("tie_word_embeddings", "tie_word_embeddings", false),
      key("max_position_embeddings"),
      fixed("attention_bias", false),
      fixed("attention_dropout", 0.0),
      fixed("use_sliding_window", false),
      key("num_attention_heads"),
      key("num_key_value_heads"),
      key("head_dim"),
      rope_theta_key(),
      rope_scaling_key(),
  };
  f.adopt = adopt;
  return f;
}

}  // namespace

Family qwen3() {
  Family f = common("Qwen3ForCausalLM", "qwen3");
  f.holds = [](const ModelConfig& c) { return !c.is_latent() && !c.has_experts(); };
  f.derive = [](ModelConfig& c) { c.first_k_dense_replace = c.num_hidden_layers; };
  return f;
}

Family qwen3_moe() {
  Family f = common("Qwen3MoeForCausalLM", "qwen3_moe");
  const std::vector<PublishedKey> experts{
      {.name = "mlp_only_layers",
       .ours = "first_k_dense_replace",
       .read = read_dense_layers,
       .write = write_dense_layers},
      fixed("decoder_sparse_step", 1),
      key("num_experts", "n_routed_experts"),
      key("num_experts_per_tok"),
      key("moe_intermediate_size"),
      key("norm_topk_prob", "norm_topk_prob", false),
  };
  f.keys.insert(f.keys.end(), experts.begin(), experts.end());
  f.only = {is("decoder_sparse_step", 1, "every layer after the dense ones has experts")};
  f.read_besides = {"num_local_experts", "output_router_logits", "router_aux_loss_coef"};
  f.rewrite = rename;
  f.holds = [](const ModelConfig& c) { return !c.is_latent() && c.has_experts(); };
  return f;
}

}  // namespace heddle::config

// Granite 3, dense and with experts in every layer: LLaMA and Mixtral with four factors.
//
// In the folders of GraniteMoE the matrices of a layer's experts are one tensor, rows of gate ahead of those of up.
//
// Sources: GraniteConfig and GraniteMoeConfig of Transformers 5, gone through key by key; the config.json files
// released with granite-3.1-2b-base, granite-3.1-8b-base, granite-3.1-1b-a400m-base and granite-3.1-3b-a800m-base.
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

Family common_granite(const char* architecture, const char* model_type) {
  Family f = grouped_family(architecture, model_type, 1e-6);
  f.keys.push_back(own_attention_bias_key());
  f.keys.push_back(key("embedding_multiplier", "embedding_multiplier", 1.0));
  f.keys.push_back(key("logits_scaling", "logits_divisor", 1.0));
  f.keys.push_back(key("residual_multiplier", "residual_multiplier", 1.0));
  f.keys.push_back(key("attention_multiplier", "attention_scale", 1.0));
  f.only = {above_zero("attention_multiplier")};
  return f;
}

ModelConfig sized_granite(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, double attention,
                          double logits, double residual) {
  ModelConfig c = sized(grouped_base(), {49155, hidden, layers, mlp, heads, 8, 131072});
  make_dense(c);
  c.rms_norm_eps = 1e-5;
  c.tie_word_embeddings = true;
  c.embedding_multiplier = 12;
  c.attention_scale = attention;
  c.logits_divisor = logits;
  c.residual_multiplier = residual;
  return c;
}

ModelConfig dense(int64_t hidden, int64_t mlp, double attention, double logits, double theta) {
  ModelConfig c = sized_granite(hidden, 40, mlp, 32, attention, logits, 0.22);
  c.rope_theta = theta;
  return c;
}

ModelConfig mixture_granite(int64_t hidden, int64_t layers, int64_t heads, int64_t experts) {
  ModelConfig c = sized_granite(hidden, layers, 512, heads, 0.015625, 6, 0.22);
  c.rope_theta = 1.5e6;
  c.n_routed_experts = experts;
  c.num_experts_per_tok = 8;
  only_experts(c);
  return c;
}

std::string spelt_granite(std::string name) {
  return respelt(std::move(name), {{".mlp.gate.weight", ".block_sparse_moe.router.layer.weight"}});
}

// …mlp.experts.3.up_proj.weight is the second half of the fourth matrix of …block_sparse_moe.input_linear.weight.
std::optional<ReleasedPlace> stacked_granite(const std::string& name, const std::vector<int64_t>& shape,
                                             int64_t experts, const JoinedRows&) {
  const std::optional<ExpertName> of = expert_name(name);
  if (!of || shape.size() != 2) return std::nullopt;
  const bool down = of->tensor == "down_proj.weight", up = of->tensor == "up_proj.weight";
  if (!down && !up && of->tensor != "gate_proj.weight") return std::nullopt;
  const int64_t rows = shape[0] * (down ? 1 : 2), columns = shape[1];
  return ReleasedPlace{.name = std::string(of->layer) + "block_sparse_moe." +
                               (down ? "output_linear.weight" : "input_linear.weight"),
                       .shape = {experts, rows, columns},
                       .first = (of->expert * rows + (up ? shape[0] : 0)) * columns,
                       .row_step = columns,
                       .is_whole = false};
}

bool has_factors(const ModelConfig& c) { return !c.is_latent() && !c.qk_norm && c.attention_scale > 0; }

}  // namespace

Family granite() {
  Family f = common_granite("GraniteForCausalLM", "granite");
  f.keys.push_back(key("mlp_bias", "mlp_bias", false));
  f.derive = make_dense;
  f.holds = [](const ModelConfig& c) { return has_factors(c) && !c.has_experts(); };
  f.presets = {{"granite-3.1-2b", dense(2048, 8192, 0.015625, 8, 5e6)},
               {"granite-3.1-8b", dense(4096, 12800, 0.0078125, 16, 1e7)}};
  return f;
}

Family granite_moe() {
  Family f = common_granite("GraniteMoeForCausalLM", "granitemoe");
  f.keys.push_back(key("num_local_experts", "n_routed_experts", 8));
  f.keys.push_back(key("num_experts_per_tok", "num_experts_per_tok", 2));
  f.said = {"moe_intermediate_size", "first_k_dense_replace", "norm_topk_prob"};
  f.read_besides = {"num_experts", "output_router_logits", "router_aux_loss_coef"};
  f.rewrite = name_num_local_experts;
  f.adopt = adopt_router_loss;
  f.derive = only_experts;
  f.holds = [](const ModelConfig& c) {
    return follows(c, only_experts) && has_factors(c) && !c.sigmoid_scores && c.norm_topk_prob &&
           c.n_shared_experts == 0;
  };
  f.spelt = spelt_granite;
  f.stacked = stacked_granite;
  f.presets = {{"granite-3.1-1b-a400m", mixture_granite(1024, 24, 16, 32)},
               {"granite-3.1-3b-a800m", mixture_granite(1536, 32, 24, 40)}};
  return f;
}

}  // namespace heddle::config

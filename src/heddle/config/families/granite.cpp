// Granite 3, dense and with experts in every layer: LLaMA and Mixtral with four factors. GraniteMoeShared has a
// shared expert too. Granite SWA is dense or has experts. It has a sink a head, and windows in all layers but every
// fourth, the first among them. Each layer has rotary positions of a base that is said for it, or none.
//
// In the folders of GraniteMoE the matrices of a layer's experts are one tensor, rows of gate ahead of those of up.
// So are gate and up of a shared expert.
//
// Sources: the configurations and models of these five families in Transformers 5, gone through key by key. For the
// presets, the config.json files released with granite-3.1-2b-base, granite-3.1-8b-base,
// granite-3.1-1b-a400m-base and granite-3.1-3b-a800m-base.
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/turning_layers.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

Family common_granite(const char* architecture, const char* model_type) {
  Family f = grouped_family(architecture, model_type, 1e-6);
  f.base.attention_scale = 1;  // where the key is absent
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

// The matrices of a shared expert, of which gate and up are one.
std::optional<ReleasedPlace> stacked_shared_granite(const std::string& name, const std::vector<int64_t>& shape) {
  constexpr std::string_view kShared = "mlp.shared_experts.";
  const size_t at = name.find(kShared);
  if (at == std::string::npos || shape.size() != 2) return std::nullopt;
  const std::string_view tensor = std::string_view(name).substr(at + kShared.size());
  const std::string layer = name.substr(0, at);
  if (tensor == "down_proj.weight")
    return ReleasedPlace{
        .name = layer + "shared_mlp.output_linear.weight", .shape = shape, .row_step = shape.back()};
  const bool up = tensor == "up_proj.weight";
  if (!up && tensor != "gate_proj.weight") return std::nullopt;
  return ReleasedPlace{.name = layer + "shared_mlp.input_linear.weight",
                       .shape = {2 * shape[0], shape[1]},
                       .first = up ? shape[0] * shape[1] : 0,
                       .row_step = shape[1],
                       .is_whole = false};
}

std::optional<ReleasedPlace> stacked_with_shared_granite(const std::string& name, const std::vector<int64_t>& shape,
                                                         int64_t experts, const JoinedRows& joined) {
  if (const auto shared = stacked_shared_granite(name, shape)) return shared;
  return stacked_granite(name, shape, experts, joined);
}

// GraniteMoeSWA came after Transformers had other names of its own.
std::string spelt_moe_swa(std::string name) {
  return respelt(std::move(name), {{".mlp.gate.weight", ".block_sparse_moe.router.weight"}});
}
std::optional<ReleasedPlace> stacked_moe_swa(const std::string& name, const std::vector<int64_t>& shape,
                                             int64_t experts, const JoinedRows&) {
  if (const auto shared = stacked_shared_granite(name, shape)) return shared;
  return stacked_expert(name, shape, experts, "block_sparse_moe.experts.");
}

// 0 is no shared expert.
PublishedKey shared_width_key() {
  return {.name = "shared_intermediate_size",
          .ours = "shared_intermediate_size",
          .read = [](const JsonKeys& keys, ModelConfig& c) {
            c.shared_intermediate_size = keys.whole("shared_intermediate_size", 0);
            c.n_shared_experts = c.shared_intermediate_size > 0 ? 1 : 0;
          }};
}

// Without layer_types every fourth layer has full attention, from the first on.
void add_windows_granite(Family& f) {
  f.base.attention_sinks = true;
  f.base.sliding_window = 128;
  f.base.full_attention_interval = 4;
  f.base.full_attention_offset = 1;
  for (PublishedKey& each : window_of_all_but_every_nth(128, "", 4, 0, 1)) {
    if (each.name == "sliding_window") {
      each.read = [read = each.read](const JsonKeys& keys, ModelConfig& c) {
        c.full_attention_interval = c.full_attention_offset = 0;  // a file may have no windows
        read(keys, c);
      };
    }
    f.keys.push_back(std::move(each));
  }
  f.keys.push_back(layer_rope_theta_key());
  for (const char* said :
       {"attention_sinks", "max_window_layers", "full_attention_interval", "full_attention_offset", "layer_pattern",
        "positions", "rotation_pattern", "no_rope_layer_interval"})
    f.said.emplace_back(said);
}

bool has_factors(const ModelConfig& c) {
  return !c.is_latent() && !c.qk_norm && c.attention_scale > 0 && !c.parallel_blocks && c.norm == model::Norm::rms;
}

bool has_windows_granite(const ModelConfig& c) {
  return has_factors(c) && !c.recurs() && c.attention_sinks && !c.sinks_in_windows && c.window_rotary_factor == 0 &&
         !c.learns_positions();
}

bool has_experts_granite(const ModelConfig& c) {
  return follows(c, only_experts) && has_factors(c) && !c.sigmoid_scores && c.norm_topk_prob;
}
bool says_shared_experts(const ModelConfig& c) {
  return c.n_shared_experts == (c.shared_intermediate_size > 0 ? 1 : 0);
}

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

namespace {

Family common_granite_moe(const char* architecture, const char* model_type) {
  Family f = common_granite(architecture, model_type);
  f.keys.push_back(key("num_local_experts", "n_routed_experts", 8));
  f.keys.push_back(key("num_experts_per_tok", "num_experts_per_tok", 2));
  f.said = {"moe_intermediate_size", "first_k_dense_replace", "norm_topk_prob"};
  f.read_besides = {"num_experts", "output_router_logits", "router_aux_loss_coef"};
  f.rewrite = name_num_local_experts;
  f.adopt = adopt_router_loss;
  f.derive = only_experts;
  f.spelt = spelt_granite;
  f.stacked = stacked_granite;
  return f;
}

}  // namespace

Family granite_moe() {
  Family f = common_granite_moe("GraniteMoeForCausalLM", "granitemoe");
  f.holds = [](const ModelConfig& c) { return has_experts_granite(c) && c.n_shared_experts == 0; };
  f.presets = {{"granite-3.1-1b-a400m", mixture_granite(1024, 24, 16, 32)},
               {"granite-3.1-3b-a800m", mixture_granite(1536, 32, 24, 40)}};
  return f;
}

Family granite_moe_shared() {
  Family f = common_granite_moe("GraniteMoeSharedForCausalLM", "granitemoeshared");
  f.base.n_shared_experts = 1;
  f.base.shared_intermediate_size = 1024;
  f.keys.push_back(shared_width_key());
  f.said.emplace_back("n_shared_experts");
  f.holds = [](const ModelConfig& c) { return has_experts_granite(c) && says_shared_experts(c); };
  f.stacked = stacked_with_shared_granite;
  return f;
}

Family granite_swa() {
  Family f = common_granite("GraniteSWAForCausalLM", "granite_swa");
  replace_keys(
      f, {key("rms_norm_eps", "rms_norm_eps", 1e-5), key("tie_word_embeddings", "tie_word_embeddings", true)});
  f.keys.push_back(key("mlp_bias", "mlp_bias", false));
  add_windows_granite(f);
  make_dense(f.base);
  f.derive = make_dense;
  f.holds = [](const ModelConfig& c) { return has_windows_granite(c) && !c.has_experts(); };
  return f;
}

Family granite_moe_swa() {
  Family f = common_granite_moe("GraniteMoeSWAForCausalLM", "granitemoe_swa");
  f.keys.push_back(shared_width_key());
  f.said.emplace_back("n_shared_experts");
  add_windows_granite(f);
  f.holds = [](const ModelConfig& c) {
    return has_windows_granite(c) && has_experts_granite(c) && says_shared_experts(c);
  };
  f.spelt = spelt_moe_swa;
  f.stacked = stacked_moe_swa;
  return f;
}

}  // namespace heddle::config

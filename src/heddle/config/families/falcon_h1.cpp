// Falcon-H1 (TII, arXiv 2507.22448): each layer has attention and Mamba-2 side by side, which read one norm and add
// their sum to the stream, and an MLP behind them. Factors stand on the embedded tokens, on what either reads and
// makes, on keys, on each part of what Mamba-2 projects, on gates and outputs of MLPs, and on logits. What Mamba-2
// makes is normed or not.
//
// Source: FalconH1Config and modeling_falcon_h1.py of Transformers 5, gone through key by key. For the preset, the
// config.json released with Falcon-H1-0.5B-Base.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/mamba_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::Recurrence;
using model::RecurrentNorm;
using Written = nlohmann::ordered_json;

void refuse_other_kinds(Json& root, const std::string& place) {
  for (const char* name : {"layer_types", "layers_block_type"}) {
    const Json kinds = root.value(name, Json());
    if (kinds.is_null()) continue;
    const bool both = kinds.is_array() &&
                      std::all_of(kinds.begin(), kinds.end(), [](const Json& kind) { return kind == "hybrid"; });
    if (!both) {
      config_error("{}: '{}' is {}: each layer is 'hybrid', with attention and Mamba-2", place, name,
                   formats::shown(kinds));
    }
    root.erase(name);
  }
}

// One key here says whether both maps of Mamba-2 have biases.
void rewrite_falcon_h1(Json& root, const std::string& place) {
  refuse_other_kinds(root, place);
  const auto value = [&](const char* name) {
    const Json found = root.value(name, Json());
    return found.is_null() ? Json(false) : found;
  };
  const Json in = value("mamba_proj_bias"), out = value("projectors_bias");
  if (in != out) {
    config_error("{}: 'mamba_proj_bias' is {} and 'projectors_bias' {}: both maps of Mamba-2 have a bias, or none",
                 place, formats::shown(in), formats::shown(out));
  }
}

// The numbers of a list; nothing where it is absent.
std::vector<double> list_of(const JsonKeys& keys, const char* name, size_t count) {
  const Json* list = keys.find(name);
  if (list == nullptr) return {};
  const bool numbers = list->is_array() && list->size() == count &&
                       std::all_of(list->begin(), list->end(), [](const Json& one) { return one.is_number(); });
  if (!numbers)
    config_error("{}: '{}' is {}, a list of {} numbers is expected", keys.place(), name, formats::shown(*list),
                 count);
  return list->get<std::vector<double>>();
}

void read_mlp_factors(const JsonKeys& keys, ModelConfig& c) {
  const std::vector<double> factors = list_of(keys, "mlp_multipliers", 2);
  c.mlp_gate_multiplier = factors.empty() ? 1 : factors[0];
  c.mlp_beta_factor = factors.empty() ? 1 : factors[1];
}

void read_part_factors(const JsonKeys& keys, ModelConfig& c) {
  constexpr size_t kParts = 5;
  const std::vector<double> factors = list_of(keys, "ssm_multipliers", kParts);
  c.linear_part_multipliers = factors.empty() ? "" : model::text_of_factors(factors);
}

Written write_part_factors(const ModelConfig& c) {
  const auto factors = model::factors_of(c.linear_part_multipliers);
  return factors ? Written(*factors) : Written();
}

void read_recurrent_norm(const JsonKeys& keys, ModelConfig& c) {
  const bool norms = keys.boolean("mamba_rms_norm", false), ahead = keys.boolean("mamba_norm_before_gate", true);
  c.linear_norm = !norms ? RecurrentNorm::none : ahead ? RecurrentNorm::ungated : RecurrentNorm::gated;
}

// Null is what "mamba_expand" makes of the stream's width.
void read_inner_width(const JsonKeys& keys, ModelConfig& c) {
  constexpr int64_t kStandard = 1024;
  const bool is_null = keys.contains("mamba_d_ssm") && keys.find("mamba_d_ssm") == nullptr;
  const int64_t expanded = keys.whole("mamba_expand", 2) * c.hidden_size;
  read_mamba_width(keys, is_null ? expanded : keys.whole("mamba_d_ssm", kStandard),
                   is_null ? "'mamba_expand' × 'hidden_size'" : "'mamba_d_ssm'", c);
}

ModelConfig base_falcon_h1() {
  ModelConfig c = grouped_base();
  c.recurrence = Recurrence::mamba2;
  c.recurrence_beside_attention = true;
  c.linear_norm = RecurrentNorm::none;
  return c;
}

std::string spelt_falcon_h1(std::string name) {
  if (name == "model.norm.weight") return "model.final_layernorm.weight";
  return respelt(std::move(name), {{".linear_attn.", ".mamba."},
                                   {".mlp.", ".feed_forward."},
                                   {".post_attention_layernorm.", ".pre_ff_layernorm."}});
}

ModelConfig falcon_h1_half_b() {
  ModelConfig c = sized(base_falcon_h1(), {32784, 1024, 36, 2048, 8, 2, 16384, 64});
  make_dense(c);
  c.rms_norm_eps = 1e-5;
  c.rope_theta = 1e11;
  c.linear_num_key_heads = 1;
  c.linear_num_value_heads = 24;
  c.linear_value_head_dim = 64;
  c.linear_key_head_dim = 128;
  c.embedding_multiplier = 5.656854249492381;
  c.logits_divisor = 1 / 0.0390625;
  c.key_multiplier = 0.390625;
  c.full_attn_beta_factor = 0.9375;
  c.linear_in_multiplier = 1.25;
  c.linear_attn_beta_factor = 0.23570226039551587;
  c.linear_part_multipliers =
      model::text_of_factors({0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738});
  c.mlp_gate_multiplier = 0.8838834764831844;
  c.mlp_beta_factor = 0.5859375;
  return c;
}

}  // namespace

Family falcon_h1() {
  Family f = grouped_family("FalconH1ForCausalLM", "falcon_h1", 1e-5, base_falcon_h1());
  replace_keys(f, {kv_heads_key(8)});
  f.keys.push_back(own_attention_bias_key());
  f.keys.push_back(key("mlp_bias", "mlp_bias", false));
  f.said = {"recurrence", "recurrence_beside_attention", "mlp_beta_factor"};
  f.only = {never("attn_layer_indices", "each layer has attention"),
            is("mamba_use_mlp", true, "each layer has an MLP")};
  f.read_besides = {"num_logits_to_keep", "mlp_expansion_factor", "time_step_floor",
                    "time_step_max",      "time_step_min",        "time_step_rank"};
  add_mamba_keys(f);
  for (PublishedKey& each : f.keys)
    if (each.name == "mamba_d_head") each.read = read_inner_width;
  add_keys(
      f, {
             read_elsewhere("mamba_d_ssm", [](const ModelConfig& c) { return Written(c.linear_values_width()); }),
             {.name = "mamba_rms_norm",
              .ours = "linear_norm",
              .read = read_recurrent_norm,
              .write = [](const ModelConfig& c) { return Written(c.linear_norm != RecurrentNorm::none); }},
             read_elsewhere("mamba_norm_before_gate",
                            [](const ModelConfig& c) { return Written(c.linear_norm == RecurrentNorm::ungated); }),
             read_elsewhere("projectors_bias", [](const ModelConfig& c) { return Written(c.linear_bias); }),
             key("embedding_multiplier", "embedding_multiplier", 1.0),
             logits_factor_key("lm_head_multiplier", 1.0),
             key("key_multiplier", "key_multiplier", 1.0),
             key("attention_in_multiplier", "attention_in_multiplier", 1.0),
             key("attention_out_multiplier", "full_attn_beta_factor", 1.0),
             key("ssm_in_multiplier", "linear_in_multiplier", 1.0),
             key("ssm_out_multiplier", "linear_attn_beta_factor", 1.0),
             {.name = "ssm_multipliers",
              .ours = "linear_part_multipliers",
              .read = read_part_factors,
              .write = write_part_factors},
             {.name = "mlp_multipliers",
              .ours = "mlp_gate_multiplier",
              .read = read_mlp_factors,
              .write =
                  [](const ModelConfig& c) {
                    return Written{c.mlp_gate_multiplier, c.mlp_beta_factor};
                  }},
         });
  f.rewrite = rewrite_falcon_h1;
  f.derive = make_dense;
  f.holds = [](const ModelConfig& c) {
    return c.recurrence_beside_attention && c.is_grouped() && !c.has_experts() && !c.qk_norm &&
           !c.attention_sinks && c.norm == model::Norm::rms && follows(c, make_dense);
  };
  f.spelt = spelt_falcon_h1;
  f.presets = {{"falcon-h1-0.5b", falcon_h1_half_b()}};
  return f;
}

}  // namespace heddle::config

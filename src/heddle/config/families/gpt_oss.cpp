// GPT-OSS: grouped attention with biases, sinks, and windows in every second layer; in every layer experts with
// biases and clamped SwiGLU, chosen by a router with a bias. A softmax over the chosen logits is one over all,
// normed over the chosen.
//
// In its folders the tensors of a layer's experts are one, its matrices transposed and the columns of gate and up
// in turns. Released ones hold them in MXFP4 (formats/quantised.h).
//
// Sources: GptOssConfig and modeling_gpt_oss.py of Transformers 5, gone through key by key; arXiv 2508.10925,
// section 2; the config.json files released with gpt-oss-20b and gpt-oss-120b.
#include <charconv>

#include "heddle/base/error.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

namespace {

using model::AttentionBias;
using model::ModelConfig;
using Written = nlohmann::ordered_json;

// The default of Transformers where a file says nothing of rotary positions.
constexpr const char* kUsualRope =
    R"({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
        "original_max_position_embeddings": 4096})";

void rewrite_gpt_oss(Json& root, const std::string& place) {
  join_names(root, place, {{"num_experts", "num_local_experts"}, {"experts_per_token", "num_experts_per_tok"}});
  const auto says = [&](const char* key) { return !root.value(key, Json()).is_null(); };
  if (!says("rope_scaling") && !says("rope_parameters")) root["rope_scaling"] = Json::parse(kUsualRope);
}

// Nothing would be what is usual here.
PublishedKey rope_scaling() {
  return {.name = "rope_scaling", .write = [](const ModelConfig& c) {
            return c.rope_scaling ? rope_scaling_json(c) : Written{{"rope_type", "default"}};
          }};
}

PublishedKey limit() {
  return {.name = "swiglu_limit", .ours = "swiglu_limit", .read = [](const JsonKeys& keys, ModelConfig& c) {
            c.swiglu_limit = keys.number("swiglu_limit", 7.0);
            if (!(c.swiglu_limit > 0)) {
              config_error("{}: 'swiglu_limit' is {}, accepted: a number above 0", keys.place(), c.swiglu_limit);
            }
          }};
}

bool holds_gpt_oss(const ModelConfig& c) {
  return follows(c, only_experts) && !c.is_latent() && c.attention_sinks && c.experts_bias && c.router_bias &&
         c.swiglu_limit > 0 && c.sliding_window > 0 && c.attention_bias != AttentionBias::qkv && !c.qk_norm &&
         !c.sigmoid_scores && c.norm_topk_prob && c.n_shared_experts == 0;
}

std::string spelt_gpt_oss(std::string name) {
  constexpr std::string_view kGate = ".mlp.gate.";
  if (const size_t at = name.find(kGate); at != std::string::npos) name.replace(at, kGate.size(), ".mlp.router.");
  return name;
}

// …mlp.experts.3.up_proj.weight is every second column of the fourth matrix of …mlp.experts.gate_up_proj.
std::optional<ReleasedPlace> stacked_gpt_oss(const std::string& name, const std::vector<int64_t>& shape,
                                             int64_t experts, const JoinedRows&) {
  constexpr std::string_view kExperts = ".mlp.experts.";
  const size_t at = name.find(kExperts);
  if (at == std::string::npos) return std::nullopt;
  const size_t from = at + kExperts.size();
  int64_t expert = 0;
  const auto [end, error] = std::from_chars(name.data() + from, name.data() + name.size(), expert);
  if (error != std::errc()) return std::nullopt;
  const std::string_view rest(end);
  const bool bias = rest.ends_with(".bias"), joint = !rest.starts_with(".down_proj.");
  const auto is = [&](std::string_view matrix) {
    return rest.starts_with(matrix) && rest.substr(matrix.size()) == (bias ? ".bias" : ".weight");
  };
  if (!is(".gate_proj") && !is(".up_proj") && !is(".down_proj")) return std::nullopt;
  if (shape.size() != (bias ? 1U : 2U)) return std::nullopt;
  const int64_t in = bias ? 1 : shape[1], out = shape[0] * (joint ? 2 : 1), step = joint ? 2 : 1;
  ReleasedPlace place{.name = name.substr(0, from) + (joint ? "gate_up_proj" : "down_proj") + (bias ? "_bias" : ""),
                      .shape = {experts, in, out},
                      .first = expert * in * out + (rest.starts_with(".up_proj.") ? 1 : 0),
                      .row_step = step,
                      .column_step = bias ? step : out,
                      .is_whole = false};
  if (bias) place.shape = {experts, out};
  return place;
}

ModelConfig sized_gpt_oss(int64_t layers, int64_t experts) {
  ModelConfig c = sized(grouped_base(), {201088, 2880, layers, 2880, 64, 8, 131072, 64});
  c.rms_norm_eps = 1e-5;
  c.attention_bias = AttentionBias::all;
  c.attention_sinks = c.router_bias = c.experts_bias = true;
  c.sliding_window = 128;
  c.full_attention_interval = 2;
  c.rope_theta = 150000;
  c.rope_scaling = model::RopeScaling{.factor = 32, .truncate = false};
  c.n_routed_experts = experts;
  c.num_experts_per_tok = 4;
  c.swiglu_limit = 7;
  only_experts(c);
  return c;
}

}  // namespace

Family gpt_oss() {
  Family f = grouped_family("GptOssForCausalLM", "gpt_oss", 1e-5);
  f.base.attention_sinks = f.base.router_bias = f.base.experts_bias = true;
  f.base.rope_theta = 150000;
  replace_keys(f, {rope_scaling()});
  f.keys.push_back(attention_bias_key(AttentionBias::all, true));
  f.keys.push_back(key("num_local_experts", "n_routed_experts", 128));
  f.keys.push_back(key("num_experts_per_tok", "num_experts_per_tok", 4));
  f.keys.push_back(limit());
  f.keys.push_back(key("swiglu_alpha", "swiglu_alpha", 1.702));
  add_keys(f, window_of_every_other_layer());
  f.said = {"moe_intermediate_size", "first_k_dense_replace", "norm_topk_prob"};
  f.read_besides = {"num_experts", "experts_per_token", "initial_context_length", "output_router_logits",
                    "router_aux_loss_coef"};
  f.rewrite = rewrite_gpt_oss;
  f.adopt = adopt_router_loss;
  f.derive = only_experts;
  f.holds = holds_gpt_oss;
  f.spelt = spelt_gpt_oss;
  f.stacked = stacked_gpt_oss;
  f.presets = {{"gpt-oss-20b", sized_gpt_oss(24, 32)}, {"gpt-oss-120b", sized_gpt_oss(36, 128)}};
  return f;
}

}  // namespace heddle::config

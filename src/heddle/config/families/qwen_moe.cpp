// Qwen2-MoE: Qwen2 with experts, and shared ones behind a gate. Qwen3-Next has them too. One layer of four has
// attention, with norms of 1 + w, a gate an element and heads that are turned in part; the others have the gated
// delta rule.
//
// In Qwen3-Next's folders the projection of queries holds each head's query and, behind it, its gate, as it does
// here. So does that of a recurrent layer: each key head's query, key, values and gates. The convolutions of queries,
// keys and values lie in one tensor. The layer that predicts one further token lies under "mtp.".
//
// Sources: Qwen2MoeConfig, Qwen3NextConfig and modeling_qwen3_next.py of Transformers 5, gone through key by key;
// qwen3_next_mtp.py of vLLM; the config.json files released with Qwen1.5-MoE-A2.7B and Qwen2-57B-A14B.
#include <algorithm>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/formats/json_text.h"
#include "heddle/formats/released_files.h"

namespace heddle::config {

namespace {

using model::AttentionBias;
using model::AttentionGate;
using model::ModelConfig;
using model::Recurrence;
using Written = nlohmann::ordered_json;

PublishedKey qkv_bias() {
  return {.name = "qkv_bias",
          .ours = "",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                c.attention_bias = keys.boolean("qkv_bias", true) ? AttentionBias::qkv : AttentionBias::none;
              },
          .write = [](const ModelConfig& c) { return Written(c.attention_bias != AttentionBias::none); }};
}

void rename(Json& root, const std::string& place) {
  join_names(root, place, {{"num_local_experts", "num_experts"}});
}

// One gated shared expert of a width of its own.
void derive(ModelConfig& c) {
  c.first_k_dense_replace = 0;
  c.n_shared_experts = 1;
}

std::string spelt(std::string name) {
  return respelt(std::move(name), {{".mlp.shared_experts.", ".mlp.shared_expert."}});
}

Family common(const char* architecture, const char* model_type) {
  Family f;
  f.architecture = architecture;
  f.model_type = model_type;
  f.base = grouped_base();
  f.base.shared_expert_gate = true;
  f.base.n_shared_experts = 1;
  f.keys = grouped_keys(1e-6);
  const std::vector<PublishedKey> experts{
      fixed("mlp_only_layers", Json::array()),
      fixed("decoder_sparse_step", 1),
      key("num_experts", "n_routed_experts"),
      key("num_experts_per_tok"),
      key("moe_intermediate_size"),
      key("shared_expert_intermediate_size", "shared_intermediate_size"),
  };
  f.keys.insert(f.keys.end(), experts.begin(), experts.end());
  for (PublishedKey& each : f.keys) {  // Transformers has a default of its own for this: it must be there
    if (each.name == "num_key_value_heads") each = key("num_key_value_heads");
  }
  f.said = {"first_k_dense_replace", "n_shared_experts"};
  f.only = {is("decoder_sparse_step", 1, "every layer has experts"),
            is("mlp_only_layers", Json::array(), "every layer has experts"),
            above_zero("shared_expert_intermediate_size")};
  f.read_besides = {"num_local_experts", "output_router_logits", "router_aux_loss_coef", "full_attention_interval"};
  f.rewrite = rename;
  f.adopt = adopt_router_loss;
  f.derive = derive;
  f.spelt = spelt;
  return f;
}

bool is_gated(const ModelConfig& c) {
  return !c.is_latent() && c.first_k_dense_replace == 0 && c.n_shared_experts == 1 && c.shared_expert_gate &&
         c.shared_intermediate_size > 0 && !c.sigmoid_scores;
}

ModelConfig sized(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t kv_heads, int64_t positions) {
  ModelConfig c = grouped_base();
  c.vocab_size = 151936;
  c.hidden_size = hidden;
  c.num_hidden_layers = layers;
  c.intermediate_size = mlp;
  c.num_attention_heads = heads;
  c.num_key_value_heads = kv_heads;
  c.head_dim = hidden / heads;
  c.attention_bias = AttentionBias::qkv;
  c.rope_theta = 1e6;
  c.max_position_embeddings = positions;
  c.shared_expert_gate = true;
  c.norm_topk_prob = false;
  derive(c);
  return c;
}

ModelConfig qwen15() {
  ModelConfig c = sized(2048, 24, 5632, 16, 16, 8192);
  c.n_routed_experts = 60;
  c.num_experts_per_tok = 4;
  c.moe_intermediate_size = 1408;
  c.shared_intermediate_size = 5632;
  return c;
}

ModelConfig qwen2_57b() {
  ModelConfig c = sized(3584, 28, 18944, 28, 4, 131072);
  c.n_routed_experts = 64;
  c.num_experts_per_tok = 8;
  c.moe_intermediate_size = 2560;
  c.shared_intermediate_size = 20480;
  return c;
}

constexpr const char *kFull = "full_attention", *kLinear = "linear_attention";

int64_t whole(const JsonKeys& keys, const char* name, int64_t otherwise) {
  return keys.find(name) == nullptr ? otherwise : std::get<int64_t>(keys.required(name, model::Key::Kind::integer));
}

Written layer_types(const ModelConfig& c) {
  Written types = Written::array();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) types.push_back(c.is_recurrent(l) ? kLinear : kFull);
  return types;
}

// Absent layer types are three of linear attention and one of full attention, or what full_attention_interval says.
// It stays as it is where the list means the same.
void read_layer_types(const JsonKeys& keys, ModelConfig& c) {
  const Json* types = keys.find("layer_types");
  c.full_attention_interval = whole(keys, "full_attention_interval", 4);
  if (types != nullptr) {
    const auto means = [&](int64_t interval) {
      int64_t l = 0;
      return types->is_array() && std::ssize(*types) == c.num_hidden_layers &&
             std::all_of(types->begin(), types->end(), [&](const Json& type) {
               return type == (interval > 0 && ++l % interval == 0 ? kFull : kLinear);
             });
    };
    if (types->is_array() && !means(c.full_attention_interval)) {
      const auto full = std::find(types->begin(), types->end(), kFull);
      c.full_attention_interval = full == types->end() ? 0 : full - types->begin() + 1;
    }
    if (!means(c.full_attention_interval)) {
      config_error("{}: 'layer_types' is {}: each of {} layers is '{}', but for every n-th, which is '{}'",
                   keys.place(), formats::shown(*types), c.num_hidden_layers, kLinear, kFull);
    }
  }
  c.recurrence = c.full_attention_interval == 1 ? Recurrence::none : Recurrence::gated_delta;
  if (!c.recurs()) c.full_attention_interval = 0;
}

// A model without recurrent layers has no sizes of theirs.
void derive_next(ModelConfig& c) {
  derive(c);
  if (!c.recurs()) model::reset_foreign_keys(c);
}

// A released folder has the layer of the further token where its weights do. Transformers knows no key of it.
void count_predictions(ModelConfig& c, const std::string& path, std::vector<std::string>*) {
  const auto names = formats::released_names(std::filesystem::path(path).parent_path().string());
  if (!c.recurs() || !names) return;
  c.num_nextn_predict_layers =
      std::any_of(names->begin(), names->end(), [](const auto& name) { return name == "mtp.fc.weight"; }) ? 1 : 0;
}

std::string spelt_next(std::string name) {
  const std::string first = "mtp.layers.0.";
  return respelt(spelt(std::move(name)), {{first + "eh_proj.", "mtp.fc."},
                                          {first + "enorm.", "mtp.pre_fc_norm_embedding."},
                                          {first + "hnorm.", "mtp.pre_fc_norm_hidden."},
                                          {first + "shared_head.norm.", "mtp.norm."}});
}

ModelConfig next_base() {
  ModelConfig c = grouped_base();
  c.shared_expert_gate = c.qk_norm = c.zero_centered_norms = true;
  c.n_shared_experts = 1;
  c.shared_intermediate_size = 512;
  c.attention_gate = AttentionGate::element;
  c.recurrence = Recurrence::gated_delta;
  c.full_attention_interval = 4;
  c.linear_num_key_heads = 16;
  c.linear_num_value_heads = 32;
  c.linear_key_head_dim = c.linear_value_head_dim = 128;
  return c;
}

ModelConfig next_80b() {
  ModelConfig c = next_base();
  c.vocab_size = 151936;
  c.hidden_size = 2048;
  c.num_hidden_layers = 48;
  c.intermediate_size = 5120;
  c.num_attention_heads = 16;
  c.num_key_value_heads = 2;
  c.head_dim = 256;
  c.partial_rotary_factor = 0.25;
  c.rope_theta = 1e7;
  c.max_position_embeddings = 262144;
  c.n_routed_experts = 512;
  c.num_experts_per_tok = 10;
  c.moe_intermediate_size = 512;
  derive(c);
  return c;
}

}  // namespace

Family qwen2_moe() {
  Family f = common("Qwen2MoeForCausalLM", "qwen2_moe");
  f.keys.push_back(qkv_bias());
  f.keys.push_back(key("norm_topk_prob", "norm_topk_prob", false));
  f.holds = [](const ModelConfig& c) { return is_gated(c) && !c.qk_norm; };
  f.presets = {{"qwen1.5-moe-a2.7b", qwen15()}, {"qwen2-57b-a14b", qwen2_57b()}};
  return f;
}

Family qwen3_next() {
  Family f = common("Qwen3NextForCausalLM", "qwen3_next");
  f.base = next_base();
  for (PublishedKey& each : f.keys) {
    if (each.name == "head_dim") each = key("head_dim");
  }
  const std::vector<PublishedKey> more{
      partial_rotary_key(0.25),
      key("norm_topk_prob", "norm_topk_prob", true),
      {.name = "layer_types", .ours = "recurrence", .read = read_layer_types, .write = layer_types},
      {.name = "full_attention_interval",
       .ours = "full_attention_interval",
       .read = [](const JsonKeys&, ModelConfig&) {},  // with the layer types
       .write = [](const ModelConfig& c) { return Written(c.recurs() ? c.full_attention_interval : 1); }},
      key("linear_num_key_heads", "linear_num_key_heads", 16),
      key("linear_num_value_heads", "linear_num_value_heads", 32),
      key("linear_key_head_dim", "linear_key_head_dim", 128),
      key("linear_value_head_dim", "linear_value_head_dim", 128),
      key("linear_conv_kernel_dim", "linear_conv_kernel_dim", 4),
      key("num_nextn_predict_layers", "num_nextn_predict_layers", 0),
  };
  f.keys.insert(f.keys.end(), more.begin(), more.end());
  f.derive = derive_next;
  f.complete = count_predictions;
  f.spelt = spelt_next;
  f.passed_over = [](std::string_view name, const HasTensor&) { return name.starts_with("mtp."); };
  f.presets = {{"qwen3-next-80b-a3b", next_80b()}};
  f.holds = [](const ModelConfig& c) {
    return is_gated(c) && c.qk_norm && c.zero_centered_norms && c.attention_gate == AttentionGate::element;
  };
  return f;
}

}  // namespace heddle::config

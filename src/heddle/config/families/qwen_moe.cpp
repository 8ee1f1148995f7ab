// Qwen2-MoE: Qwen2 with experts, and shared ones behind a gate. Qwen3-Next has them too. One layer of four has
// attention, with norms of 1 + w, a gate an element and heads that are turned in part; the others have the gated
// delta rule.
//
// In Qwen3-Next's folders the projection of queries holds each head's query and, behind it, its gate, as it does
// here. So does that of a recurrent layer: each key head's query, key, values and gates. The convolutions of
// queries, keys and values lie in one tensor. The layer that predicts one further token lies under "mtp.".
//
// Qwen3.5 has Qwen3-Next's layers, with experts or dense. Queries, keys and values of a recurrent layer are one
// tensor of its files, head by head each; the gate and the numbers a head are tensors of their own. Released
// folders hold a text model beside one of pictures, whose tensors are passed over; there a layer's experts are two
// tensors.
//
// Sources: configurations and models of qwen2_moe, qwen3_next, qwen3_5 and qwen3_5_moe of Transformers 5, gone
// through key by key; qwen3_next_mtp.py of vLLM. Sizes are those of the config.json files released with
// Qwen1.5-MoE-A2.7B and Qwen2-57B-A14B. The sizes of Qwen3.5 are those of slime's launch scripts.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/beside_pictures.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/layer_kinds.h"
#include "heddle/config/families/prediction_layers.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::AttentionBias;
using model::AttentionGate;
using model::ModelConfig;
using model::Recurrence;
using Written = nlohmann::ordered_json;

// One gated shared expert of a width of its own.
void derive_qwen_moe(ModelConfig& c) { c.n_shared_experts = 1; }

std::string spelt_qwen_moe(std::string name) {
  return respelt(std::move(name), {{".mlp.shared_experts.", ".mlp.shared_expert."}});
}

Family common_qwen_moe(const char* architecture, const char* model_type) {
  Family f = grouped_family(architecture, model_type, 1e-6);
  f.base.shared_expert_gate = true;
  f.base.n_shared_experts = 1;
  add_keys(f, sparse_step_keys());
  add_keys(f, {
                  key("num_experts", "n_routed_experts"),
                  key("num_experts_per_tok"),
                  key("moe_intermediate_size"),
                  key("shared_expert_intermediate_size", "shared_intermediate_size"),
              });
  f.said = {"n_shared_experts"};
  f.only = {above_zero("shared_expert_intermediate_size")};
  f.read_besides = {"num_local_experts", "output_router_logits", "router_aux_loss_coef", "full_attention_interval"};
  f.rewrite = name_num_experts;
  f.adopt = adopt_router_loss;
  f.derive = derive_qwen_moe;
  f.spelt = spelt_qwen_moe;
  return f;
}

bool is_gated(const ModelConfig& c) {
  return !c.is_latent() && c.has_experts() && c.n_shared_experts == 1 && c.shared_expert_gate &&
         c.shared_intermediate_size > 0 && !c.sigmoid_scores;
}

ModelConfig sized_qwen_moe(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t kv_heads,
                           int64_t positions) {
  ModelConfig c = sized(grouped_base(), {151936, hidden, layers, mlp, heads, kv_heads, positions});
  c.attention_bias = AttentionBias::qkv;
  c.rope_theta = 1e6;
  c.shared_expert_gate = true;
  c.norm_topk_prob = false;
  c.first_k_dense_replace = 0;
  derive_qwen_moe(c);
  return c;
}

ModelConfig qwen15() {
  ModelConfig c = sized_qwen_moe(2048, 24, 5632, 16, 16, 8192);
  give_experts(c, {.experts = 60, .chosen = 4, .width = 1408});
  c.shared_intermediate_size = 5632;
  return c;
}

ModelConfig qwen2_57b() {
  ModelConfig c = sized_qwen_moe(3584, 28, 18944, 28, 4, 131072);
  give_experts(c, {.experts = 64, .chosen = 8, .width = 2560});
  c.shared_intermediate_size = 20480;
  return c;
}

constexpr const char *kFullQwen = "full_attention", *kLinearQwen = "linear_attention";

// Absent layer types are three of linear attention and one of full attention, or what full_attention_interval says.
// It stays as it is where the list means the same. Any other order is a letter a layer.
void read_layer_types_qwen_moe(const JsonKeys& keys, ModelConfig& c) {
  const Json* types = keys.find("layer_types");
  const auto set_each = [&] {
    set_layer_kinds(keys, attention_by_words(keys, c.num_hidden_layers), Recurrence::gated_delta, c);
  };
  if (types != nullptr && keys.find("layer_pattern") != nullptr) return set_each();
  c.full_attention_interval = keys.whole("full_attention_interval", 4);
  if (types != nullptr) {
    const auto means = [&](int64_t interval) {
      int64_t l = 0;
      return types->is_array() && std::ssize(*types) == c.num_hidden_layers &&
             std::all_of(types->begin(), types->end(), [&](const Json& type) {
               return type == (interval > 0 && ++l % interval == 0 ? kFullQwen : kLinearQwen);
             });
    };
    if (types->is_array() && !means(c.full_attention_interval)) {
      const auto full = std::find(types->begin(), types->end(), kFullQwen);
      c.full_attention_interval = full == types->end() ? 0 : full - types->begin() + 1;
    }
    if (!means(c.full_attention_interval)) return set_each();
  }
  c.recurrence = c.full_attention_interval == 1 ? Recurrence::none : Recurrence::gated_delta;
  if (!c.recurs()) c.full_attention_interval = 0;
}

// A model without recurrent layers has no sizes of theirs.
void derive_next(ModelConfig& c) {
  derive_qwen_moe(c);
  if (!c.recurs()) model::reset_foreign_keys(c);
}

// A released folder has the layer of the further token where its weights do. Transformers knows no key of it.
void count_predictions_qwen_moe(ModelConfig& c, const std::string& path, std::vector<std::string>*) {
  if (!c.recurs()) return;
  if (const auto has = weights_beside_have(path, "mtp.fc.weight")) c.num_nextn_predict_layers = *has ? 1 : 0;
}

std::string spelt_next(std::string name) {
  const std::string first = "mtp.layers.0.";
  return respelt(spelt_qwen_moe(std::move(name)), {{first + "eh_proj.", "mtp.fc."},
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
  ModelConfig c = sized(next_base(), {151936, 2048, 48, 5120, 16, 2, 262144, 256});
  c.partial_rotary_factor = 0.25;
  c.rope_theta = 1e7;
  give_experts(c, {.experts = 512, .chosen = 10, .width = 512});
  c.first_k_dense_replace = 0;
  derive_qwen_moe(c);
  return c;
}

void derive_dense(ModelConfig& c) {
  c.first_k_dense_replace = c.num_hidden_layers + c.num_nextn_predict_layers;
  if (!c.recurs()) model::reset_foreign_keys(c);
}

void count_dense_predictions(ModelConfig& c, const std::string& path, std::vector<std::string>* warnings) {
  count_predictions_qwen_moe(c, path, warnings);
  derive_dense(c);
}

std::string spelt_next_beside_pictures(std::string name) {
  return spelt_beside_pictures(spelt_next(std::move(name)));
}

std::optional<ReleasedPlace> stacked_beside_pictures(const std::string& name, const std::vector<int64_t>& shape,
                                                     int64_t experts, const JoinedRows&) {
  std::optional<ReleasedPlace> place = stacked_expert(name, shape, experts, "mlp.experts.");
  if (place) place->name = spelt_next_beside_pictures(place->name);
  return place;
}

bool is_next(const ModelConfig& c) {
  return !c.is_latent() && c.qk_norm && c.zero_centered_norms && c.attention_gate == AttentionGate::element;
}

ModelConfig sized_3_5(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t kv_heads,
                      int64_t recurrent_heads) {
  ModelConfig c = sized(next_base(), {248320, hidden, layers, mlp, heads, kv_heads, 262144, 256});
  c.linear_projections_apart = true;
  c.linear_num_value_heads = recurrent_heads;
  c.partial_rotary_factor = 0.25;
  c.rope_theta = 1e7;
  return c;
}

ModelConfig dense_3_5(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t recurrent_heads) {
  ModelConfig c = sized_3_5(hidden, layers, mlp, heads, 4, recurrent_heads);
  c.shared_expert_gate = false;
  c.n_shared_experts = c.shared_intermediate_size = 0;
  derive_dense(c);
  return c;
}

// There is no dense layer, whose width would be another.
void derive_experts_3_5(ModelConfig& c) {
  c.intermediate_size = c.moe_intermediate_size;
  c.first_k_dense_replace = 0;
  c.mlp_pattern.clear();
  derive_next(c);
}

ModelConfig experts_3_5(ModelConfig c, int64_t experts, int64_t chosen) {
  c.n_routed_experts = experts;
  c.num_experts_per_tok = chosen;
  c.moe_intermediate_size = c.shared_intermediate_size = c.intermediate_size;
  derive_experts_3_5(c);
  return c;
}

// Keys of Qwen3-Next's layers.
void add_next_keys(Family& f) {
  add_keys(f, {
                  partial_rotary_key(0.25),
                  {.name = "layer_types",
                   .ours = "recurrence",
                   .read = read_layer_types_qwen_moe,
                   .write = words_of_layers},
                  read_elsewhere(
                      "full_attention_interval",  // with the layer types
                      [](const ModelConfig& c) { return Written(c.recurs() ? c.full_attention_interval : 1); },
                      "full_attention_interval"),
                  layer_pattern_key(),
                  key("linear_num_key_heads", "linear_num_key_heads", 16),
                  key("linear_num_value_heads", "linear_num_value_heads", 32),
                  key("linear_key_head_dim", "linear_key_head_dim", 128),
                  key("linear_value_head_dim", "linear_value_head_dim", 128),
                  key("linear_conv_kernel_dim", "linear_conv_kernel_dim", 4),
              });
  f.derive = derive_next;
  f.complete = count_predictions_qwen_moe;
  f.spelt = spelt_next;
  f.passed_over = [](std::string_view name, const HasTensor&) { return name.starts_with("mtp."); };
}

// Adds what Qwen3.5 has of keys with experts and without.
void add_keys_of_3_5(Family& f) {
  add_next_keys(f);
  f.base.linear_projections_apart = true;
  f.keys.push_back(fixed("attn_output_gate", true));
  f.keys.push_back(key("mtp_num_hidden_layers", "num_nextn_predict_layers", 0));
  f.said.push_back("linear_projections_apart");
  f.only.push_back(is("attn_output_gate", true, "attention's output has a gate"));
  f.only.push_back(off("mtp_use_dedicated_embeddings", "layers of further tokens share the embedding"));
  f.only.push_back(is("mlp_only_layers", Json::array(), "every layer is of one kind"));
  f.read_besides.insert(f.read_besides.end(), {"mamba_ssm_dtype", "full_attention_interval"});
}

Family beside_pictures_qwen3_5(Family text, const char* architecture, const char* model_type) {
  Family f = beside_pictures(std::move(text), architecture, model_type);
  f.spelt = spelt_next_beside_pictures;
  f.passed_over = [](std::string_view name, const HasTensor&) { return name.starts_with("model.visual."); };
  return f;
}

}  // namespace

Family qwen2_moe() {
  Family f = common_qwen_moe("Qwen2MoeForCausalLM", "qwen2_moe");
  f.keys.push_back(attention_bias_key(AttentionBias::qkv, true, "qkv_bias", ""));
  f.keys.push_back(key("norm_topk_prob", "norm_topk_prob", false));
  f.holds = [](const ModelConfig& c) { return is_gated(c) && !c.qk_norm; };
  f.presets = {{"qwen1.5-moe-a2.7b", qwen15()}, {"qwen2-57b-a14b", qwen2_57b()}};
  return f;
}

Family qwen3_next() {
  Family f = common_qwen_moe("Qwen3NextForCausalLM", "qwen3_next");
  f.base = next_base();
  add_next_keys(f);
  f.keys.push_back(key("norm_topk_prob", "norm_topk_prob", true));
  f.keys.push_back(key("num_nextn_predict_layers", "num_nextn_predict_layers", 0));
  f.presets = {{"qwen3-next-80b-a3b", next_80b()}};
  f.holds = [](const ModelConfig& c) { return is_gated(c) && is_next(c); };
  return f;
}

Family qwen3_5() {
  Family f = grouped_family("Qwen3_5ForCausalLM", "qwen3_5_text", 1e-6, next_base());
  f.base.shared_expert_gate = false;
  f.base.n_shared_experts = f.base.shared_intermediate_size = 0;
  add_keys_of_3_5(f);
  f.derive = derive_dense;
  f.complete = count_dense_predictions;
  f.presets = {{"qwen3.5-9b", dense_3_5(4096, 32, 12288, 16, 32)},
               {"qwen3.5-27b", dense_3_5(5120, 64, 17408, 24, 48)}};
  f.holds = [](const ModelConfig& c) {
    return is_next(c) && !c.has_experts() && (!c.recurs() || c.linear_projections_apart);
  };
  return f;
}

Family qwen3_5_moe() {
  Family f = common_qwen_moe("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text");
  f.base = next_base();
  drop_keys(f, {"intermediate_size", "mlp_only_layers", "decoder_sparse_step"});
  add_keys_of_3_5(f);
  f.rewrite = name_num_experts;
  f.derive = derive_experts_3_5;
  f.read_besides.push_back("intermediate_size");
  f.said.insert(f.said.end(), {"norm_topk_prob", "first_k_dense_replace", "mlp_pattern"});
  f.only.push_back(is("norm_topk_prob", true, "gates sum to one"));
  f.presets = {{"qwen3.5-35b-a3b", experts_3_5(sized_3_5(2048, 40, 512, 16, 2, 32), 256, 8)},
               {"qwen3.5-397b-a17b", experts_3_5(sized_3_5(4096, 60, 1024, 32, 2, 64), 512, 10)}};
  f.holds = [](const ModelConfig& c) {
    return is_gated(c) && !c.has_dense_layers() && is_next(c) && c.norm_topk_prob && c.recurs() &&
           c.linear_projections_apart;
  };
  return f;
}

Family qwen3_5_beside_pictures() {
  return beside_pictures_qwen3_5(qwen3_5(), "Qwen3_5ForConditionalGeneration", "qwen3_5");
}

Family qwen3_5_moe_beside_pictures() {
  Family f = beside_pictures_qwen3_5(qwen3_5_moe(), "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe");
  f.stacked = stacked_beside_pictures;
  return f;
}

}  // namespace heddle::config

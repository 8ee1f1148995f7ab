// Kimi Linear (Moonshot AI, arXiv 2510.26692): most layers have Kimi Delta Attention, the others DeepSeek-V3's
// latent attention, in which nothing is turned. Experts are DeepSeek-V3's under other names.
//
// Released files count layers from 1 in two lists, those with the recurrence and those with attention. Files that
// Transformers writes have a word a layer in their place. It puts the dense layers' MLP beside the experts, too.
//
// Sources: the config.json file released with Kimi-Linear-48B-A3B; KimiLinearConfig and modeling_kimi_linear.py of
// Transformers 5, gone through key by key; configuration_kimi.py and modeling_kimi.py of the release.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/layer_kinds.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::Positions;
using model::Recurrence;
using Written = nlohmann::ordered_json;

constexpr const char* kLinear = "linear_attn_config";

// Puts what Transformers writes into the words of the release; a word a layer says how many are dense.
void rewrite_kimi_linear(Json& root, const std::string& place) {
  join_names(root, place,
             {{"max_position_embeddings", "model_max_length"},
              {"norm_topk_prob", "moe_renormalize"},
              {"n_group", "num_expert_group"},
              {"num_local_experts", "num_experts"},
              {"num_experts_per_tok", "num_experts_per_token"},
              {"n_shared_experts", "num_shared_experts"}});
  const Json types = root.value("mlp_layer_types", Json());
  if (!types.is_array() || !root.value("first_k_dense_replace", Json()).is_null()) return;
  const auto other = std::find_if(types.begin(), types.end(), [](const Json& type) { return type != "dense"; });
  root["first_k_dense_replace"] = other - types.begin();
}

bool says_dense_layers_kimi_linear(const Json& types, const Json& root) {
  const Json dense = root.value("first_k_dense_replace", Json(1));
  if (!types.is_array() || types.size() != root.value("num_hidden_layers", Json()) || !dense.is_number_integer())
    return false;
  int64_t l = 0;
  return std::all_of(types.begin(), types.end(),
                     [&](const Json& type) { return type == (l++ < dense.get<int64_t>() ? "dense" : "sparse"); });
}

// The release's two lists say which layers have attention.
std::vector<bool> by_lists(const JsonKeys& keys, const Json& lists, int64_t layers) {
  std::vector<bool> attends(static_cast<size_t>(layers)), said(attends.size());
  for (const char* name : {"full_attn_layers", "kda_layers"}) {
    const Json list = lists.value(name, Json());
    for (const Json& layer : list.is_array() ? list : Json::array({Json()})) {
      const bool right = layer.is_number_integer() && layer >= 1 && layer <= layers;
      const size_t l = right ? layer.get<size_t>() - 1 : 0;
      if (!right || said[l]) {
        config_error("{}: '{}.{}' is {}: each of {} layers stands once, counted from 1, in one of two lists",
                     keys.place(), kLinear, name, formats::shown(list), layers);
      }
      said[l] = true;
      attends[l] = name == std::string_view("full_attn_layers");
    }
  }
  if (const auto at = std::find(said.begin(), said.end(), false); at != said.end()) {
    config_error("{}: '{}' has layer {} in neither 'kda_layers' nor 'full_attn_layers'", keys.place(), kLinear,
                 at - said.begin() + 1);
  }
  return attends;
}

std::vector<bool> layers_that_attend(const JsonKeys& keys, const Json& lists, int64_t layers) {
  const bool has_lists = lists.contains("kda_layers") || lists.contains("full_attn_layers");
  const bool has_words = keys.find("layer_types") != nullptr;
  if (!has_lists && !has_words)
    config_error("{}: '{}' or 'layer_types' must say which layers have attention", keys.place(), kLinear);
  const std::vector<bool> attends = has_lists ? by_lists(keys, lists, layers) : attention_by_words(keys, layers);
  if (has_words && attention_by_words(keys, layers) != attends)
    config_error("{}: 'layer_types' says something else than '{}'", keys.place(), kLinear);
  return attends;
}

void read_layers_kimi_linear(const JsonKeys& keys, ModelConfig& c) {
  const Json* object = keys.find(kLinear);
  if (object != nullptr && !object->is_object())
    config_error("{}: '{}' is {}, an object is expected", keys.place(), kLinear, formats::shown(*object));
  const Json none = Json::object();
  const JsonKeys inner(object == nullptr ? none : *object, keys.place(), std::string(kLinear) + ".");
  inner.refuse_others({"head_dim", "num_heads", "short_conv_kernel_size", "kda_layers", "full_attn_layers"});
  c.linear_key_head_dim = c.linear_value_head_dim = inner.whole("head_dim", keys.whole("linear_head_dim", 128));
  c.linear_num_key_heads = c.linear_num_value_heads = inner.whole("num_heads", keys.whole("linear_num_heads", 32));
  c.linear_conv_kernel_dim = inner.whole("short_conv_kernel_size", keys.whole("linear_conv_kernel_dim", 4));
  constexpr int64_t kMostLayers = 4096;
  if (c.num_hidden_layers < 1 || c.num_hidden_layers > kMostLayers) return;  // refused with the bounds of keys
  const std::vector<bool> attends =
      layers_that_attend(keys, object == nullptr ? none : *object, c.num_hidden_layers);
  set_layer_kinds(keys, attends, Recurrence::kimi_delta, c);
}

Written write_layers_kimi_linear(const ModelConfig& c) {
  Written lists{{"full_attn_layers", Written::array()}, {"kda_layers", Written::array()}};
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    lists[c.is_recurrent(l) ? "kda_layers" : "full_attn_layers"].push_back(l + 1);
  lists["head_dim"] = c.linear_key_head_dim;
  lists["num_heads"] = c.linear_num_key_heads;
  lists["short_conv_kernel_size"] = c.linear_conv_kernel_dim;
  return lists;
}

void derive_kimi_linear(ModelConfig& c) {
  if (!c.recurs()) model::reset_foreign_keys(c);
}

// Shared experts, too, lie beside the router.
std::string spelt_kimi_linear(std::string name) {
  return respelt(spelt_block_sparse(std::move(name)),
                 {{".mlp.shared_experts.", ".block_sparse_moe.shared_experts."}});
}

std::string also_spelt_kimi_linear(std::string name) {
  return respelt(spelt_kimi_linear(std::move(name)), {{".mlp.", ".block_sparse_moe."}});
}

ModelConfig base_kimi_linear() {
  ModelConfig c;
  c.positions = Positions::none;
  c.recurrence = Recurrence::kimi_delta;
  return c;
}

ModelConfig kimi_48b() {
  ModelConfig c = base_kimi_linear();
  c.vocab_size = 163840;
  c.hidden_size = 2304;
  c.num_hidden_layers = 27;
  c.intermediate_size = 9216;
  c.rms_norm_eps = 1e-5;
  c.max_position_embeddings = 1048576;
  c.num_attention_heads = 32;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 128;
  c.qk_rope_head_dim = 64;
  c.v_head_dim = 128;
  c.full_attention_interval = 4;
  c.full_attention_last = true;
  c.linear_num_key_heads = c.linear_num_value_heads = 32;
  c.linear_key_head_dim = c.linear_value_head_dim = 128;
  give_experts(c, {.experts = 256, .chosen = 8, .width = 1024});
  c.routed_scaling_factor = 2.446;
  return c;
}

}  // namespace

Family kimi_linear() {
  Family f;
  f.architecture = "KimiLinearForCausalLM";
  f.model_type = "kimi_linear";
  f.base = base_kimi_linear();
  f.keys = {
      key("vocab_size"),
      key("hidden_size"),
      key("num_hidden_layers"),
      key("intermediate_size"),
      key("first_k_dense_replace", "first_k_dense_replace", 1),
      fixed("moe_layer_freq", 1),
      fixed("hidden_act", "silu"),
      key("rms_norm_eps", "rms_norm_eps", 1e-5),
      key("initializer_range", "initializer_range", 0.02),
      key("tie_word_embeddings", "tie_word_embeddings", false),
      key("model_max_length", "max_position_embeddings", 1048576),
      key("num_attention_heads"),
      {.name = "num_key_value_heads", .write = [](const ModelConfig& c) { return Written(c.num_attention_heads); }},
      {.name = "q_lora_rank",
       .ours = "q_lora_rank",
       .read = [](const JsonKeys& keys, ModelConfig& c) { c.q_lora_rank = keys.whole("q_lora_rank", 0); },
       .write = [](const ModelConfig& c) { return c.q_lora_rank > 0 ? Written(c.q_lora_rank) : Written(nullptr); }},
      key("kv_lora_rank", "kv_lora_rank", 512),
      key("qk_nope_head_dim", "qk_nope_head_dim", 128),
      key("qk_rope_head_dim", "qk_rope_head_dim", 64),
      key("v_head_dim", "v_head_dim", 128),
      {.name = "mla_use_nope",
       .ours = "positions",
       .read =
           [](const JsonKeys& keys, ModelConfig& c) {
             c.positions = keys.boolean("mla_use_nope", true) ? Positions::none : Positions::rotary;
           },
       .write = [](const ModelConfig& c) { return Written(!c.turns()); }},
      rope_theta_key(),
      rope_scaling_key(),
      {.name = kLinear, .ours = "recurrence", .read = read_layers_kimi_linear, .write = write_layers_kimi_linear},
      read_elsewhere("layer_types", words_of_layers),  // with the lists
      key("num_experts", "n_routed_experts", 256),
      key("num_experts_per_token", "num_experts_per_tok", 8),
      key("num_shared_experts", "n_shared_experts", 1, 0),
      key("moe_intermediate_size"),
      key("num_expert_group", "n_group", 1),
      key("topk_group", "topk_group", 1),
      key("moe_renormalize", "norm_topk_prob", true),
      fixed("moe_router_activation_func", "sigmoid"),
      fixed("use_grouped_topk", true),
      key("routed_scaling_factor", "routed_scaling_factor", 2.446),
      fixed("num_nextn_predict_layers", 0),
  };
  add_keys(f, layer_kind_keys());
  f.said = {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
            "linear_conv_kernel_dim"};
  f.only = {
      is("moe_layer_freq", 1, "every layer after the dense ones has experts"),
      is("moe_router_activation_func", "sigmoid", "scores are sigmoids"),
      is("use_grouped_topk", true, "experts are chosen by groups"),
      off("num_nextn_predict_layers", "layers that predict further tokens are not built beside the recurrence"),
      {"mla_use_nope", [](const Json& v, const Json& root) { return v == true || root.contains("heddle"); },
       "the released code turns nothing"},
      {"num_key_value_heads",
       [](const Json& v, const Json& root) { return v == root.value("num_attention_heads", Json()); },
       "latent attention has as many as heads"},
      {"mlp_layer_types", says_dense_layers_kimi_linear, "it must say what first_k_dense_replace says"}};
  f.read_besides = {"max_position_embeddings", "norm_topk_prob",   "n_group",         "num_local_experts",
                    "num_experts_per_tok",     "n_shared_experts", "linear_head_dim", "linear_num_heads",
                    "linear_conv_kernel_dim",  "head_dim",         "qk_head_dim",     "output_router_logits"};
  f.rewrite = rewrite_kimi_linear;
  f.adopt = adopt_router_loss;
  f.derive = derive_kimi_linear;
  f.holds = [](const ModelConfig& c) {
    return c.is_latent() && !c.selects() && (c.recurs() || c.positions == Positions::none);
  };
  f.spelt = spelt_kimi_linear;
  f.also_spelt = also_spelt_kimi_linear;
  f.presets = {{"kimi-linear-48b-a3b", kimi_48b()}};
  return f;
}

}  // namespace heddle::config

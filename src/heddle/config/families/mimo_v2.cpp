// MiMo-V2-Flash: most layers have a window, sinks, twice the heads of keys and values and a rotary base of their
// own; values are narrower than keys; DeepSeek-V3's router without shared experts.
//
// Sources: MiMoV2FlashConfig and modeling_mimo_v2_flash.py of Transformers 5, gone through key by key; the
// config.json file released with MiMo-V2-Flash.
#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/config/families/window_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

// Lists of 0 and 1 in the released file say what words say elsewhere.
void name_layers_mimo_v2(Json& root, const std::string& place, const char* numbers, const char* words,
                         const char* zero, const char* one) {
  const Json list = root.value(numbers, Json());
  if (list.is_null()) return;
  if (!list.is_array())
    config_error("{}: '{}' is {}, a list of 0 and 1 is expected", place, numbers, formats::shown(list));
  Json named = Json::array();
  for (const Json& each : list) {
    if (!each.is_number_integer() || (each != 0 && each != 1))
      config_error("{}: '{}' has {}, accepted: 0 and 1", place, numbers, formats::shown(each));
    named.push_back(each == 0 ? zero : one);
  }
  if (const Json other = root.value(words, Json()); !other.is_null() && other != named)
    config_error("{}: '{}' and '{}' say different things of the layers", place, numbers, words);
  root[words] = named;
  root.erase(numbers);
}

void rewrite_mimo_v2(Json& root, const std::string& place) {
  join_names(root, place, {{"num_local_experts", "n_routed_experts"}, {"swa_rope_theta", "rope_local_base_freq"}});
  name_layers_mimo_v2(root, place, "hybrid_layer_pattern", "layer_types", "full_attention", "sliding_attention");
  name_layers_mimo_v2(root, place, "moe_layer_freq", "mlp_layer_types", "dense", "sparse");
  if (const Json size = root.value("sliding_window_size", Json()); !size.is_null()) {
    if (!size.is_number_integer() || size < 0 || size > (int64_t{1} << 40)) {
      config_error("{}: 'sliding_window_size' is {}, a whole number of 0 or more is expected", place,
                   formats::shown(size));
    }
    root["sliding_window"] = size.get<int64_t>() + 1;  // of tokens before a query's own
  }
  flatten_rotation_by_layer(root, place, "rope_local_base_freq");
}

void derive_mimo_v2(ModelConfig& c) { c.window_key_value_heads = 2 * c.num_key_value_heads; }

// Values as wide as keys have no width of their own here.
PublishedKey value_width() {
  return {.name = "v_head_dim",
          .ours = "",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                c.value_head_dim = keys.whole("v_head_dim", 128);
                if (c.value_head_dim == c.head_dim) c.value_head_dim = 0;
              },
          .write = [](const ModelConfig& c) { return nlohmann::ordered_json(c.value_width()); }};
}

// Layers with a window have what the others have, by a key whose value may be the standard one.
Only like(const char* name, const char* other, Json standard, const char* reason) {
  return {name,
          [=](const Json& v, const Json& root) {
            const Json value = root.value(other, Json());
            return v == (value.is_null() ? standard : value);
          },
          reason};
}

// Transformers reads rotary keys by kind of layer alone.
nlohmann::ordered_json rotation_by_layer_mimo_v2(const ModelConfig& c) {
  const auto of = [&](const ModelConfig& rotation) {
    nlohmann::ordered_json keys = rotation.rope_scaling ? rope_scaling_json(rotation) : nlohmann::ordered_json();
    keys["rope_type"] = rotation.rope_scaling ? word_of(rotation.rope_scaling->type) : "default";
    keys["rope_theta"] = rotation.rope_theta;
    keys["partial_rotary_factor"] = c.partial_rotary_factor;
    return keys;
  };
  return {{"full_attention", of(c)}, {"sliding_attention", of(c.with_rotation_of_windows())}};
}

bool holds_mimo_v2(const ModelConfig& c) {
  return !c.is_latent() && c.has_experts() && c.sigmoid_scores && c.sinks_in_windows && c.sliding_window > 0 &&
         c.window_rope_theta > 0 && c.n_shared_experts == 0;
}

std::string spelt_mimo_v2(std::string name) {
  return respelt(std::move(name), {{".self_attn.sinks", ".self_attn.attention_sink_bias"}});
}

ModelConfig base_mimo_v2() {
  ModelConfig c = grouped_base();
  c.attention_sinks = c.sinks_in_windows = c.sigmoid_scores = c.topk_bias = true;
  c.rope_theta = 5e6;
  c.window_rope_theta = 1e4;
  return c;
}

ModelConfig flash_mimo_v2() {
  ModelConfig c = sized(base_mimo_v2(), {152576, 4096, 48, 16384, 64, 4, 131072, 192});
  c.first_k_dense_replace = 1;
  c.rms_norm_eps = 1e-5;
  c.value_head_dim = 128;
  c.value_multiplier = 0.707;
  c.partial_rotary_factor = 0.334;
  c.sliding_window = 129;
  c.max_window_layers = 1;
  c.full_attention_interval = 6;
  give_experts(c, {.experts = 256, .chosen = 8, .width = 2048});
  derive_mimo_v2(c);
  return c;
}

}  // namespace

Family mimo_v2_flash() {
  Family f = grouped_family("MiMoV2FlashForCausalLM", "mimo_v2_flash", 1e-5, base_mimo_v2());
  add_keys(f, {
                  own_attention_bias_key(model::AttentionBias::qkv),
                  partial_rotary_key(0.334),
                  value_width(),
                  key("attention_value_scale", "value_multiplier", 0.707, 1.0),
                  key("rope_local_base_freq", "window_rope_theta", 1e4),
                  mlp_layer_types_key(1),
                  key("n_routed_experts", "n_routed_experts", 256),
                  key("num_experts_per_tok", "num_experts_per_tok", 8),
                  key("moe_intermediate_size", "moe_intermediate_size", 2048),
                  key("n_group", "n_group", 1),
                  key("topk_group", "topk_group", 1),
                  key("norm_topk_prob", "norm_topk_prob", true, false),
                  key("routed_scaling_factor", "routed_scaling_factor", 1.0, 1.0),
              });
  // Transformers would put it where rope_parameters is.
  drop_keys(f, {"rope_scaling"});
  f.keys.push_back(read_elsewhere("rope_parameters", rotation_by_layer_mimo_v2));  // flattened before
  add_keys(f, window_of_all_but_every_nth(129, "", 6, 1));
  f.only = {off("n_shared_experts", "shared experts are not built"),
            off("add_full_attention_sink_bias", "sinks of layers without a window are not built"),
            is("add_swa_attention_sink_bias", true, "layers with a window have sinks"),
            {"swa_num_key_value_heads",
             [](const Json& v, const Json& root) {
               const Json heads = root.value("num_key_value_heads", Json());
               return v.is_number() && heads.is_number() && v.get<double>() == 2 * heads.get<double>();
             },
             "layers with a window have twice the heads of keys and values"},
            above_zero("v_head_dim"),
            above_zero("rope_local_base_freq"),
            like("swa_head_dim", "head_dim", nullptr, "layers with a window have the others' 'head_dim'"),
            like("swa_v_head_dim", "v_head_dim", 128, "layers with a window have the others' 'v_head_dim'"),
            like("swa_num_attention_heads", "num_attention_heads", nullptr,
                 "layers with a window have the others' 'num_attention_heads'"),
            like("layernorm_epsilon", "rms_norm_eps", 1e-5, "it is 'rms_norm_eps' by another name"),
            is("scoring_func", "sigmoid", "scores are sigmoids"),
            is("topk_method", "noaux_tc", "only 'noaux_tc' is built")};
  f.read_besides = {"num_local_experts",   "swa_rope_theta",       "hybrid_layer_pattern", "moe_layer_freq",
                    "sliding_window_size", "attention_chunk_size", "output_router_logits", "hybrid_block_size"};
  f.rewrite = rewrite_mimo_v2;
  f.adopt = adopt_router_loss;
  f.derive = derive_mimo_v2;
  f.holds = holds_mimo_v2;
  f.spelt = spelt_mimo_v2;
  f.passed_over = [](std::string_view name, const HasTensor&) { return name.starts_with("model.mtp."); };
  f.presets = {{"mimo-v2-flash", flash_mimo_v2()}};
  return f;
}

}  // namespace heddle::config

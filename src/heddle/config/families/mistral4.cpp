// Ministral 3, which is dense, and Mistral Small 4, DeepSeek-V3 with a router of softmax scores: their queries have
// a factor that grows with the position. Both are released in folders that hold a model of pictures too, as is
// Mistral Small 3.
//
// Sources: Ministral3Config, Mistral4Config and Mistral3Config of Transformers 5.24, gone through key by key, whose
// standard sizes are those of Ministral-3-8B-Base-2512 and of Mistral-Small-4-119B-2603.
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/config/families/beside_pictures.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/config/families/window_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

// The rotary keys hold them; here they stand beside these.
constexpr const char *kBeta = "llama_4_scaling_beta", *kLength = "llama_4_scaling_length";
constexpr const char* kOriginal = "original_max_position_embeddings";

PublishedKey query_scale_key() {
  return {.name = "rope_parameters",
          .ours = "query_scale_beta",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                c.query_scale_beta = keys.number(kBeta);
                c.query_scale_length = keys.whole(kLength);
              },
          .write =
              [](const ModelConfig& c) {
                Written rope = rope_scaling_json(c);
                if (rope.is_null()) rope = {{"type", "default"}, {"rope_type", "default"}};
                rope["rope_theta"] = c.rope_theta;
                rope[kOriginal] = c.query_scale_length;
                rope[kBeta] = c.query_scale_beta;
                return rope;
              }};
}

// Files hold one section of rotary keys, in which the factor's stand.
void take_query_scale(Json& root, const std::string& place) {
  const RopeSection section = rope_section(JsonKeys(root, place, ""));
  if (section.keys == nullptr) config_error("{}: 'rope_parameters' is missing", place);
  Json& rope = root[section.name];
  root[kBeta] = rope.value(kBeta, Json());
  root[kLength] = rope.value(kOriginal, Json());
  for (const char* name : {kBeta, "max_position_embeddings"}) rope.erase(name);  // the other is the root's own
}

void complete_rotation_ministral3(Json& root, const std::string& place) {
  if (rope_section(JsonKeys(root, place, "")).keys == nullptr) {
    root["rope_parameters"] = {{"rope_type", "yarn"},   {"rope_theta", 1e6}, {"factor", 16.0},
                               {kOriginal, 16384},      {"beta_fast", 32.0}, {"beta_slow", 1.0},
                               {"mscale_all_dim", 1.0}, {"mscale", 1.0},     {kBeta, 0.1}};
  }
  take_query_scale(root, place);
}

// The part of a head that turns must be what the widths say.
void drop_rotated_part(Json& root, const std::string& place) {
  const RopeSection section = rope_section(JsonKeys(root, place, ""));
  if (section.keys == nullptr) return;
  Json& rope = root[section.name];
  const Json part = rope.value("partial_rotary_factor", Json());
  const Json turned = root.value("qk_rope_head_dim", Json()), rest = root.value("qk_nope_head_dim", Json());
  if (part.is_null() || !turned.is_number() || !rest.is_number()) return;
  const double expected = turned.get<double>() / (turned.get<double>() + rest.get<double>());
  constexpr double kRounding = 1e-9;
  if (!part.is_number() || std::abs(part.get<double>() - expected) > kRounding) {
    config_error("{}: '{}.partial_rotary_factor' is {}: the widths of a head make it {}", place, section.name,
                 formats::shown(part), expected);
  }
  rope.erase("partial_rotary_factor");
}

void rewrite_mistral4(Json& root, const std::string& place) {
  join_names(root, place, {{"num_local_experts", "n_routed_experts"}});
  drop_rotated_part(root, place);
  if (rope_section(JsonKeys(root, place, "")).keys == nullptr) {
    root["rope_parameters"] = {{"rope_type", "yarn"},   {"rope_theta", 1e4}, {"factor", 128.0},
                               {kOriginal, 8192},       {"beta_fast", 32.0}, {"beta_slow", 1.0},
                               {"mscale_all_dim", 1.0}, {"mscale", 1.0},     {kBeta, 0.1}};
  }
  take_query_scale(root, place);
}

// Files say one length for the factor and for what the rotation is stretched from.
bool scales_as_mistral(const ModelConfig& c) {
  return c.query_scale_beta > 0 && !c.query_scale_unturned && c.query_scale_first == 0 &&
         (!c.rope_scaling || c.rope_scaling->type == model::RopeType::linear ||
          c.rope_scaling->original_max_position_embeddings == static_cast<double>(c.query_scale_length));
}

ModelConfig stretched(ModelConfig c, double factor, int64_t length) {
  c.rope_scaling = model::RopeScaling{.factor = factor,
                                      .original_max_position_embeddings = static_cast<double>(length),
                                      .mscale = 1,
                                      .mscale_all_dim = 1};
  c.query_scale_beta = 0.1;
  c.query_scale_length = length;
  return c;
}

ModelConfig ministral_8b() {
  ModelConfig c = sized(grouped_base(), {131072, 4096, 34, 14336, 32, 8, 262144, 128});
  make_dense(c);
  c.rms_norm_eps = 1e-5;
  c.rope_theta = 1e6;
  return stretched(c, 16, 16384);
}

ModelConfig small_4() {
  ModelConfig c;
  c.vocab_size = 131072;
  c.hidden_size = 4096;
  c.num_hidden_layers = 36;
  c.intermediate_size = 12288;
  c.first_k_dense_replace = 0;
  c.max_position_embeddings = 1048576;
  c.num_attention_heads = 32;
  c.q_lora_rank = 1024;
  c.kv_lora_rank = 256;
  c.qk_nope_head_dim = c.qk_rope_head_dim = 64;
  c.v_head_dim = 128;
  c.n_routed_experts = 128;
  c.num_experts_per_tok = 4;
  c.moe_intermediate_size = 2048;
  c.sigmoid_scores = c.topk_bias = false;
  return stretched(c, 128, 8192);
}

// Files hold all experts of a layer together.
std::optional<ReleasedPlace> stacked_mistral4(const std::string& name, const std::vector<int64_t>& shape,
                                              int64_t experts, const JoinedRows&) {
  return stacked_expert(name, shape, experts, "mlp.experts.");
}
std::optional<ReleasedPlace> stacked_mistral4_ahead(const std::string& name, const std::vector<int64_t>& shape,
                                                    int64_t experts, const JoinedRows& joined) {
  std::optional<ReleasedPlace> place = stacked_mistral4(name, shape, experts, joined);
  if (place) place->name = spelt_ahead_of_model(place->name);
  return place;
}

Family beside_pictures_mistral(Family text, void (*rewrite)(Json&, const std::string&)) {
  text.text_type = text.model_type;
  Family f = beside_pictures(std::move(text), "Mistral3ForConditionalGeneration", "mistral3");
  f.rewrite = rewrite;
  f.spelt = spelt_ahead_of_model;
  f.also_spelt = spelt_beside_pictures;
  return f;
}

}  // namespace

Family ministral3() {
  Family f = grouped_family("Ministral3ForCausalLM", "ministral3", 1e-5);
  drop_keys(f, {"rope_scaling"});
  f.keys.push_back(window_of_all_layers(0));
  f.keys.push_back(query_scale_key());
  f.said = {"query_scale_length", "max_window_layers", "full_attention_interval"};
  f.read_besides = {kBeta, kLength, "rope_scaling"};
  f.rewrite = complete_rotation_ministral3;
  f.derive = make_dense;
  f.holds = [](const ModelConfig& c) {
    return c.is_grouped() && !c.has_experts() && !c.recurs() && !c.qk_norm && scales_as_mistral(c) &&
           c.max_window_layers == 0 && c.full_attention_interval == 0;
  };
  f.presets = {{"ministral-3-8b", ministral_8b()}};
  return f;
}

Family mistral4() {
  Family f = deepseek_v3();
  f.architecture = "Mistral4ForCausalLM";
  f.model_type = "mistral4";
  f.base.sigmoid_scores = f.base.topk_bias = false;
  drop_keys(f, {"rope_scaling", "moe_layer_freq", "scoring_func", "topk_method", "num_nextn_predict_layers"});
  replace_keys(f, {key("first_k_dense_replace", "first_k_dense_replace", 0), key("n_group", "n_group", 1),
                   key("topk_group", "topk_group", 1), key("routed_scaling_factor", "routed_scaling_factor", 1.0)});
  f.keys.push_back(query_scale_key());
  f.said = {"query_scale_length", "sigmoid_scores", "topk_bias"};
  std::erase_if(f.only, [](const Only& each) {
    return each.name == "scoring_func" || each.name == "topk_method" || each.name == "head_dim" ||
           each.name == "moe_layer_freq";
  });
  f.only.push_back({"head_dim",
                    [](const Json& v, const Json& root) {
                      const Json rope = root.value("qk_rope_head_dim", Json());
                      const Json nope = root.value("qk_nope_head_dim", Json());
                      return v == rope || !rope.is_number_integer() || !nope.is_number_integer() ||
                             v == rope.get<int64_t>() + nope.get<int64_t>();
                    },
                    "it must be the sum of qk_nope_head_dim and qk_rope_head_dim"});
  f.read_besides = {kBeta, kLength, "rope_scaling", "num_local_experts"};
  f.rewrite = rewrite_mistral4;
  f.complete = nullptr;
  f.further = nullptr;
  f.repeats = nullptr;
  f.stacked = stacked_mistral4;
  // Transformers turns the whole head where nothing stretches the rotation.
  f.holds = [](const ModelConfig& c) {
    return c.is_latent() && scales_as_mistral(c) && c.rope_scaling &&
           c.rope_scaling->type == model::RopeType::yarn && !c.selects() && !c.recurs() && !c.sigmoid_scores &&
           !c.softplus_scores && !c.topk_bias && c.num_nextn_predict_layers == 0;
  };
  f.presets = {{"mistral-small-4", small_4()}};
  return f;
}

Family mistral_beside_pictures() { return beside_pictures_mistral(mistral(), take_text_config); }
Family ministral3_beside_pictures() {
  return beside_pictures_mistral(ministral3(), [](Json& root, const std::string& place) {
    take_text_config(root, place);
    complete_rotation_ministral3(root, place);
  });
}
Family mistral4_beside_pictures() {
  Family f = beside_pictures_mistral(mistral4(), [](Json& root, const std::string& place) {
    take_text_config(root, place);
    rewrite_mistral4(root, place);
  });
  f.stacked = stacked_mistral4_ahead;
  return f;
}

}  // namespace heddle::config

// OLMo Hybrid: three layers of the gated delta rule to one of OLMo 3's attention. Norms are of what a recurrent
// layer's blocks read, and of what the other layers' blocks make. Steps of the delta rule go up to 2. The released
// model turns nothing.
//
// Its files have queries, keys and values of a recurrent layer by themselves, each with its convolution. Norms of
// recurrent layers have names of their own. Transformers writes one of these for the other layers too.
//
// Sources: OlmoHybridConfig and modeling_olmo_hybrid.py of Transformers 5, gone through key by key; its defaults
// are the sizes of Olmo-Hybrid-7B.
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/layer_kinds.h"
#include "heddle/config/families/rope_json.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::NormPlaces;
using model::Positions;
using model::Recurrence;
using Written = nlohmann::ordered_json;

constexpr const char *kFullOlmo = "full_attention", *kLinearOlmo = "linear_attention";
constexpr int64_t kEveryOlmo = 4;

// Every fourth layer has attention, or the last one alone, where no word says it.
void rewrite_olmo_hybrid(Json& root, const std::string&) {
  const Json layers = root.value("num_hidden_layers", Json());
  constexpr int64_t kMostLayers = 4096;
  if (!root.value("layer_types", Json()).is_null() || !layers.is_number_integer() || layers < 1 ||
      layers > kMostLayers)
    return;
  const auto count = layers.get<int64_t>();
  Json& words = root["layer_types"] = Json::array();
  for (int64_t l = 1; l <= count; ++l)
    words.push_back(l % kEveryOlmo == 0 || (count < kEveryOlmo && l == count) ? kFullOlmo : kLinearOlmo);
}

// A base that is null, inside the rotary keys or alone outside of them, turns nothing.
void read_positions_olmo_hybrid(const JsonKeys& keys, ModelConfig& c) {
  const RopeSection section = rope_section(keys);
  const bool inside = section.keys != nullptr && section.keys->contains("rope_theta");
  const bool none = inside ? (*section.keys)["rope_theta"].is_null()
                           : keys.contains("rope_theta") && keys.find("rope_theta") == nullptr;
  c.positions = none ? Positions::none : Positions::rotary;
  if (!none) read_rope(keys, c);
}

void read_layers_olmo_hybrid(const JsonKeys& keys, ModelConfig& c) {
  set_layer_kinds(keys, attention_by_words(keys, c.num_hidden_layers), Recurrence::gated_delta, c);
}

void read_recurrent_heads(const JsonKeys& keys, ModelConfig& c) {
  constexpr double kPart = 0.75;  // of the stream, for all keys of a layer
  c.linear_num_key_heads = keys.whole("linear_num_key_heads", c.num_attention_heads);
  c.linear_num_value_heads = keys.whole("linear_num_value_heads", c.num_attention_heads);
  const double of_head = kPart * static_cast<double>(c.hidden_size) /
                         static_cast<double>(std::max<int64_t>(1, c.linear_num_key_heads));
  c.linear_key_head_dim = keys.whole("linear_key_head_dim", static_cast<int64_t>(of_head));
  c.linear_value_head_dim = keys.whole("linear_value_head_dim", 2 * c.linear_key_head_dim);
}

void derive_olmo_hybrid(ModelConfig& c) {
  make_dense(c);
  if (c.turns()) return;
  c.rope_scaling.reset();
  c.rope_theta = ModelConfig().rope_theta;
}

// Recurrent layers have these names.
std::string spelt_olmo_hybrid(std::string name) {
  return respelt(std::move(name), {{".input_layernorm.", ".attention_layer_norm."},
                                   {".post_attention_layernorm.", ".feedforward_layer_norm."}});
}

// Layers with attention keep OLMo 3's names.
std::string spelt_beside_olmo_hybrid(std::string name, const HasTensor& has) {
  constexpr std::string_view kAfter = "post_attention_layernorm.weight";
  const bool attends =
      name.ends_with(kAfter) && has(name.substr(0, name.size() - kAfter.size()) + "self_attn.q_proj.weight");
  return attends ? name : spelt_olmo_hybrid(std::move(name));
}

ModelConfig base_olmo_hybrid() {
  ModelConfig c = grouped_base();
  c.qk_norm = c.qk_norm_all_heads = true;
  c.norm_places = NormPlaces::mixed;
  c.recurrence = Recurrence::gated_delta;
  c.linear_projections_apart = c.linear_tensors_apart = c.linear_double_beta = true;
  c.linear_norm_eps = 1e-5;
  return c;
}

ModelConfig hybrid_7b() {
  ModelConfig c = sized(base_olmo_hybrid(), {100352, 3840, 32, 11008, 30, 30, 65536});
  c.positions = Positions::none;
  c.full_attention_interval = kEveryOlmo;
  c.linear_num_key_heads = c.linear_num_value_heads = 30;
  c.linear_key_head_dim = 96;
  c.linear_value_head_dim = 192;
  derive_olmo_hybrid(c);
  return c;
}

}  // namespace

Family olmo_hybrid() {
  Family f = grouped_family("OlmoHybridForCausalLM", "olmo_hybrid", 1e-6, base_olmo_hybrid());
  replace_keys(f, {{.name = "rope_theta",
                    .ours = "rope_theta",
                    .read = read_positions_olmo_hybrid,
                    .write = [](const ModelConfig& c) { return c.turns() ? Written(c.rope_theta) : Written(); }}});
  f.keys.push_back(own_attention_bias_key());
  add_keys(
      f,
      {
          {.name = "layer_types", .ours = "recurrence", .read = read_layers_olmo_hybrid, .write = words_of_layers},
          {.name = "linear_num_key_heads", .ours = "linear_num_key_heads", .read = read_recurrent_heads},
          read_elsewhere(
              "linear_num_value_heads", [](const ModelConfig& c) { return Written(c.linear_num_value_heads); },
              "linear_num_value_heads"),
          read_elsewhere(
              "linear_key_head_dim", [](const ModelConfig& c) { return Written(c.linear_key_head_dim); },
              "linear_key_head_dim"),
          read_elsewhere(
              "linear_value_head_dim", [](const ModelConfig& c) { return Written(c.linear_value_head_dim); },
              "linear_value_head_dim"),
          key("linear_conv_kernel_dim", "linear_conv_kernel_dim", 4),
          key("linear_allow_neg_eigval", "linear_double_beta", true),
      });
  add_keys(f, layer_kind_keys());
  f.said = {"positions", "norm_places", "linear_projections_apart", "linear_tensors_apart", "linear_norm_eps"};
  f.read_besides = {"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max",
                    "linear_dt_init_floor"};
  f.rewrite = rewrite_olmo_hybrid;
  f.derive = derive_olmo_hybrid;
  f.spelt = spelt_olmo_hybrid;
  f.spelt_beside = spelt_beside_olmo_hybrid;
  f.holds = [](const ModelConfig& c) {
    return c.recurrence == Recurrence::gated_delta && c.norm_places == NormPlaces::mixed && c.is_grouped() &&
           c.linear_tensors_apart && c.qk_norm && c.qk_norm_all_heads && c.linear_norm_eps == 1e-5 &&
           !c.has_experts() && !c.learns_positions() && (c.turns() || c.rope_theta == ModelConfig().rope_theta);
  };
  f.presets = {{"olmo-hybrid-7b", hybrid_7b()}};
  return f;
}

}  // namespace heddle::config

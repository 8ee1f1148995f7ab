// Bamba (IBM, Princeton and others): most layers have Mamba-2 in place of attention, which turns the first half of
// each head. Behind either stands an MLP. "attn_layer_indices" are the numbers of the layers with attention.
//
// Sources: BambaConfig and modeling_bamba.py of Transformers 5, gone through key by key. For the preset, the
// config.json released with Bamba-9B-v2.
#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/layer_kinds.h"
#include "heddle/config/families/mamba_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::Recurrence;
using Written = nlohmann::ordered_json;

constexpr double kTurnedPart = 0.5;
constexpr const char* kIndices = "attn_layer_indices";

void read_layers_bamba(const JsonKeys& keys, ModelConfig& c) {
  const Json* numbers = keys.find(kIndices);
  std::vector<bool> attends(static_cast<size_t>(c.num_hidden_layers));
  for (const Json& number : numbers == nullptr    ? Json::array()
                            : numbers->is_array() ? *numbers
                                                  : Json::array({Json()})) {
    if (!number.is_number_integer() || number < 0 || number >= c.num_hidden_layers) {
      config_error("{}: '{}' is {}: numbers of {} layers are expected", keys.place(), kIndices,
                   formats::shown(*numbers), c.num_hidden_layers);
    }
    attends[number.get<size_t>()] = true;
  }
  set_layer_kinds(keys, attends, Recurrence::mamba2, c);
}

Written write_layers_bamba(const ModelConfig& c) {
  Written numbers = Written::array();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    if (!c.is_recurrent(l)) numbers.push_back(l);
  return numbers;
}

// Transformers takes this part whatever the file says outside of its rotary keys.
bool turns_half(const Json& rope, const Json&) {
  return !rope.is_object() || rope.value("partial_rotary_factor", Json(kTurnedPart)) == kTurnedPart;
}

void adopt_z_loss(Json& root, const std::string& place, std::vector<std::string>* warnings) {
  const Json factor = root.value("z_loss_coefficient", Json());
  if (!factor.is_number() || factor == 0 || warnings == nullptr) return;
  warnings->push_back(fmt::format("{}: 'z_loss_coefficient' is {}: taken as 0, for train.logit_z_loss says it here",
                                  place, formats::shown(factor)));
}

void derive_bamba(ModelConfig& c) {
  make_dense(c);
  if (!c.recurs()) model::reset_foreign_keys(c);
}

std::string spelt_bamba(std::string name) {
  if (name == "model.norm.weight") return "model.final_layernorm.weight";
  return respelt(std::move(name), {{".linear_attn.", ".mamba."},
                                   {".mlp.", ".feed_forward."},
                                   {".post_attention_layernorm.", ".pre_ff_layernorm."}});
}

ModelConfig base_bamba() {
  ModelConfig c = grouped_base();
  c.recurrence = Recurrence::mamba2;
  c.partial_rotary_factor = kTurnedPart;
  return c;
}

ModelConfig bamba_9b() {
  ModelConfig c = sized(base_bamba(), {128256, 4096, 32, 14336, 32, 8, 262144});
  c.rms_norm_eps = 1e-5;
  c.layer_pattern = std::string(32, 'M');
  for (const size_t layer : {9, 18, 27}) c.layer_pattern[layer] = '*';
  c.linear_num_key_heads = 1;
  c.linear_num_value_heads = c.linear_key_head_dim = 128;
  c.linear_value_head_dim = 64;
  derive_bamba(c);
  return c;
}

}  // namespace

Family bamba() {
  Family f = grouped_family("BambaForCausalLM", "bamba", 1e-5, base_bamba());
  replace_keys(f, {kv_heads_key(8)});
  f.keys.push_back(own_attention_bias_key());
  f.keys.push_back(key("mlp_bias", "mlp_bias", false));
  f.keys.push_back(partial_rotary_key(kTurnedPart));
  f.keys.push_back(
      {.name = kIndices, .ours = "recurrence", .read = read_layers_bamba, .write = write_layers_bamba});
  add_keys(f, layer_kind_keys());
  constexpr const char* kHalf = "the first half of each head turns";
  f.only = {is("partial_rotary_factor", kTurnedPart, kHalf),
            {"rope_parameters", turns_half, kHalf},
            {"rope_scaling", turns_half, kHalf},
            {"attn_rotary_emb",
             [](const Json& width, const Json& root) {
               const Json hidden = root.value("hidden_size", Json()),
                          heads = root.value("num_attention_heads", Json());
               const bool known = hidden.is_number_integer() && heads.is_number_integer() && heads > 0;
               return known && width == hidden.get<int64_t>() / heads.get<int64_t>() / 2;
             },
             kHalf}};
  f.read_besides = {"num_logits_to_keep", "z_loss_coefficient"};
  add_mamba_keys(f);
  f.adopt = adopt_z_loss;
  f.derive = derive_bamba;
  f.holds = [](const ModelConfig& c) {
    return c.recurrence == Recurrence::mamba2 && !c.recurrence_beside_attention && !c.is_hybrid() &&
           c.is_grouped() && !c.has_experts() && !c.qk_norm && !c.attention_sinks && c.attention_scale == 0 &&
           c.turns() && c.partial_rotary_factor == kTurnedPart && c.linear_values_width() % c.hidden_size == 0 &&
           c.norm == model::Norm::rms && follows(c, derive_bamba);
  };
  f.spelt = spelt_bamba;
  f.presets = {{"bamba-9b", bamba_9b()}};
  return f;
}

}  // namespace heddle::config

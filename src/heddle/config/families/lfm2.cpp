// LFM2 (arXiv 2511.23404): most layers have a gated short convolution in place of attention, the others grouped
// attention with normed queries and keys. Behind either stands an MLP. LFM2-MoE has experts behind its first
// layers, chosen by sigmoids with a bias on the choice.
//
// Files of the dense models say the MLP's width before Transformers takes two thirds of it and rounds it up. They
// list the layers with attention, and newer ones have a word for each layer.
//
// Sources: Lfm2Config, Lfm2MoeConfig and their models of Transformers 5, gone through key by key. The sizes are
// those of arXiv 2511.23404 and of its defaults, and give the published counts of parameters.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/layer_kinds.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::Recurrence;
using Written = nlohmann::ordered_json;

constexpr const char *kConvolution = "conv", *kRecurrentLfm2 = "linear_attention", *kFullLfm2 = "full_attention";
constexpr int64_t kMostLayersLfm2 = 4096;

// A word a layer, in those of attention_by_words.
void rewrite_lfm2_layers(Json& root, const std::string& place) {
  // This name goes before the other.
  if (const Json tied = root.value("tie_embedding", Json()); !tied.is_null()) root["tie_word_embeddings"] = tied;
  join_names(root, place, {{"block_norm_eps", "norm_eps"}, {"theta", "rope_theta"}});
  Json& types = root["layer_types"];
  if (!types.is_array()) return;
  for (Json& type : types) {
    if (type == kConvolution || type == "short_conv") type = kRecurrentLfm2;
  }
}

// The layers with attention by their numbers; without the list, all.
Json words_of_numbers(const Json& numbers, int64_t layers, const std::string& place) {
  Json words(static_cast<size_t>(layers), numbers.is_null() ? kFullLfm2 : kRecurrentLfm2);
  for (const Json& number : numbers.is_null() || numbers.is_array() ? numbers : Json::array({numbers})) {
    if (!number.is_number_integer() || number < 0 || number >= layers) {
      config_error("{}: 'full_attn_idxs' is {}: numbers of {} layers are expected", place, formats::shown(numbers),
                   layers);
    }
    words[number.get<size_t>()] = kFullLfm2;
  }
  return words;
}

// Transformers makes the width of a file smaller, and the file may say otherwise.
void adjust_width(Json& root, const std::string& place) {
  const JsonKeys keys(root, place, "");
  if (!keys.boolean("block_auto_adjust_ff_dim", true) || keys.find("intermediate_size") == nullptr) return;
  constexpr int64_t kMost = 1 << 24;
  int64_t width = 2 * keys.whole("intermediate_size") / 3;
  const bool multiplies = !keys.contains("block_ffn_dim_multiplier") || keys.find("block_ffn_dim_multiplier");
  if (multiplies) {
    const double factor = keys.number("block_ffn_dim_multiplier", 1.0);
    const int64_t multiple = keys.whole("block_multiple_of", 256);
    if (!(factor > 0 && factor * static_cast<double>(width) <= kMost) || multiple < 1 || multiple > kMost) {
      config_error("{}: 'block_ffn_dim_multiplier' is {} and 'block_multiple_of' {}: numbers above 0 are expected",
                   place, factor, multiple);
    }
    width = static_cast<int64_t>(factor * static_cast<double>(width));
    width = (width + multiple - 1) / multiple * multiple;
  }
  root["intermediate_size"] = width;
  root["block_auto_adjust_ff_dim"] = false;
}

void rewrite_lfm2(Json& root, const std::string& place) {
  rewrite_lfm2_layers(root, place);
  if (const Json width = root.value("block_ff_dim", Json()); !width.is_null()) root["intermediate_size"] = width;
  root.erase("block_ff_dim");
  adjust_width(root, place);
  const Json layers = root.value("num_hidden_layers", Json());
  if (!root["layer_types"].is_null() || !layers.is_number_integer() || layers < 0 || layers > kMostLayersLfm2)
    return;
  root["layer_types"] = words_of_numbers(root.value("full_attn_idxs", Json()), layers.get<int64_t>(), place);
}

void read_layers_lfm2(const JsonKeys& keys, ModelConfig& c) {
  set_layer_kinds(keys, attention_by_words(keys, c.num_hidden_layers), Recurrence::short_convolution, c);
}

Written write_layers_lfm2(const ModelConfig& c) {
  Written words = Written::array();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) words.push_back(c.is_recurrent(l) ? kConvolution : kFullLfm2);
  return words;
}

void derive_lfm2_moe(ModelConfig& c) {
  if (!c.recurs()) model::reset_foreign_keys(c);
}

void derive_lfm2(ModelConfig& c) {
  make_dense(c);
  derive_lfm2_moe(c);
}

// Attention alone, with normed queries and keys, is another family's.
bool has_convolutions(const ModelConfig& c) {
  return c.recurrence == Recurrence::short_convolution && c.qk_norm && !c.qk_norm_all_heads;
}

std::string spelt_lfm2(std::string name) {
  if (name == "model.norm.weight") return "model.embedding_norm.weight";
  return respelt(std::move(name), {{".input_layernorm.", ".operator_norm."},
                                   {".post_attention_layernorm.", ".ffn_norm."},
                                   {".self_attn.o_proj.", ".self_attn.out_proj."},
                                   {".self_attn.q_norm.", ".self_attn.q_layernorm."},
                                   {".self_attn.k_norm.", ".self_attn.k_layernorm."},
                                   {".linear_attn.conv1d.", ".conv.conv."},
                                   {".linear_attn.", ".conv."},
                                   {".mlp.gate.e_score_correction_bias", ".feed_forward.expert_bias"},
                                   {".mlp.", ".feed_forward."},
                                   {".gate_proj.", ".w1."},
                                   {".up_proj.", ".w3."},
                                   {".down_proj.", ".w2."}});
}

ModelConfig base_lfm2() {
  ModelConfig c = grouped_base();
  c.qk_norm = c.sigmoid_scores = c.topk_bias = true;
  c.recurrence = Recurrence::short_convolution;
  c.linear_conv_kernel_dim = 3;
  c.rope_theta = 1e6;
  return c;
}

Family common_lfm2(const char* architecture, const char* model_type) {
  Family f = grouped_family(architecture, model_type, 1e-5, base_lfm2());
  drop_keys(f, {"rms_norm_eps", "hidden_act", "attention_dropout", "max_position_embeddings"});
  replace_keys(f, {key("tie_word_embeddings", "tie_word_embeddings", true),
                   key("num_key_value_heads", "num_key_value_heads", 8)});
  add_keys(f,
           {
               key("norm_eps", "rms_norm_eps", 1e-5),
               key("max_position_embeddings", "max_position_embeddings", 128000),
               {.name = "layer_types", .ours = "recurrence", .read = read_layers_lfm2, .write = write_layers_lfm2},
               key("conv_L_cache", "linear_conv_kernel_dim", 3),
               key("conv_bias", "linear_bias", false),
           });
  add_keys(f, layer_kind_keys());
  f.only = {is("hidden_act", "silu", "MLPs have SwiGLU"), off("attention_dropout", "dropout is not built")};
  f.read_besides = {"tie_embedding",
                    "block_norm_eps",
                    "theta",
                    "conv_dim",
                    "conv_dim_out",
                    "conv_use_xavier_init",
                    "num_heads",
                    "use_pos_enc",
                    "block_dim",
                    "block_mlp_init_scale",
                    "block_out_init_scale",
                    "block_use_xavier_init",
                    "block_use_swiglu"};
  f.spelt = spelt_lfm2;
  return f;
}

// The numbers of the layers with attention.
ModelConfig with_attention(ModelConfig c, std::initializer_list<size_t> layers) {
  c.layer_pattern = std::string(static_cast<size_t>(c.num_hidden_layers), 'M');
  for (const size_t layer : layers) c.layer_pattern[layer] = '*';
  return c;
}

ModelConfig sized_lfm2(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads) {
  ModelConfig c = sized(base_lfm2(), {65536, hidden, layers, mlp, heads, 8, 128000});
  c.rms_norm_eps = 1e-5;
  c.tie_word_embeddings = true;
  return c;
}

ModelConfig dense_lfm2(int64_t hidden, int64_t mlp, int64_t heads) {
  ModelConfig c = with_attention(sized_lfm2(hidden, 16, mlp, heads), {2, 5, 8, 10, 12, 14});
  derive_lfm2(c);
  return c;
}

ModelConfig mixture_lfm2() {
  ModelConfig c = with_attention(sized_lfm2(2048, 24, 7168, 32), {2, 6, 10, 14, 18, 21});
  c.first_k_dense_replace = 2;
  give_experts(c, {.experts = 32, .chosen = 4, .width = 1792});
  return c;
}

}  // namespace

Family lfm2() {
  Family f = common_lfm2("Lfm2ForCausalLM", "lfm2");
  f.keys.push_back(fixed("block_auto_adjust_ff_dim", false));
  f.read_besides.insert(f.read_besides.end(), {"full_attn_idxs", "block_multiple_of", "block_ffn_dim_multiplier"});
  f.rewrite = rewrite_lfm2;
  f.derive = derive_lfm2;
  f.holds = [](const ModelConfig& c) { return has_convolutions(c) && !c.has_experts(); };
  f.presets = {{"lfm2-350m", dense_lfm2(1024, 4608, 16)},
               {"lfm2-700m", dense_lfm2(1536, 6912, 24)},
               {"lfm2-1.2b", dense_lfm2(2048, 8192, 32)}};
  return f;
}

Family lfm2_moe() {
  Family f = common_lfm2("Lfm2MoeForCausalLM", "lfm2_moe");
  add_keys(f, {
                  key("moe_intermediate_size", "moe_intermediate_size", 1792),
                  key("num_dense_layers", "first_k_dense_replace", 2),
                  key("num_experts", "n_routed_experts", 32),
                  key("num_experts_per_tok", "num_experts_per_tok", 4),
                  key("use_expert_bias", "topk_bias", true),
                  key("norm_topk_prob", "norm_topk_prob", true),
                  key("routed_scaling_factor", "routed_scaling_factor", 1.0),
              });
  f.read_besides.insert(f.read_besides.end(), {"num_local_experts", "output_router_logits"});
  f.rewrite = [](Json& root, const std::string& place) {
    name_num_experts(root, place);
    rewrite_lfm2_layers(root, place);
  };
  f.adopt = adopt_router_loss;
  f.derive = derive_lfm2_moe;
  f.holds = [](const ModelConfig& c) {
    return has_convolutions(c) && c.has_experts() && c.sigmoid_scores && c.n_shared_experts == 0;
  };
  f.presets = {{"lfm2-8b-a1b", mixture_lfm2()}};
  return f;
}

}  // namespace heddle::config

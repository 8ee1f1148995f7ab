// MiniMax-M3: grouped attention whose queries and keys are normed head by head and turned in part. In some layers
// an indexer chooses blocks of keys for each key head. Layers are dense or have experts under Mixtral's names,
// chosen by sigmoids with a bias on the choice, beside a shared one. All MLPs have clamped SwiGLU.
//
// Released folders hold a model of pictures too, which is passed over. Models are written as the text model alone,
// whose folders hold gate and up of an MLP as one tensor, and those of all experts.
//
// Source: configuration and model of minimax_m3_vl of Transformers 5, gone through key by key. Its defaults are the
// released sizes. It has none of which layers are dense and which attend to all keys: the preset has experts and an
// indexer in each.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/beside_pictures.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::IndexBlocks;
using model::ModelConfig;
using Written = nlohmann::ordered_json;

constexpr const char *kSparseM3 = "minimax_m3_sparse", *kFullM3 = "full_attention";
constexpr int64_t kBlocksM3 = 16;  // that a query attends to

// A list of 0 and 1 as one of words.
Json words_of_numbers(const Json& list, const std::string& place, const char* key, const char* zero,
                      const char* one) {
  Json words = Json::array();
  for (const Json& each : list.is_array() ? list : Json::array({list})) {
    if (each != 0 && each != 1)
      config_error("{}: '{}' has {}, a list of 0 and 1 is expected", place, key, formats::shown(each));
    words.push_back(each == 0 ? zero : one);
  }
  return words;
}

// Released files say of the indexer in an object, and of the kinds of layers by numbers.
void rewrite_m3(Json& root, const std::string& place) {
  join_names(root, place, {{"num_experts", "num_local_experts"}});
  if (root.value("hidden_act", Json()) == "swigluoai") root["hidden_act"] = "silu";
  const auto absent = [&](const char* name) { return root.value(name, Json()).is_null(); };
  if (const Json freq = root.value("moe_layer_freq", Json()); !freq.is_null()) {
    if (absent("mlp_layer_types"))
      root["mlp_layer_types"] = words_of_numbers(freq, place, "moe_layer_freq", "dense", "sparse");
    root.erase("moe_layer_freq");
  }
  Json sparse = root.value("sparse_attention_config", Json());
  if (sparse.is_null()) return;
  if (!sparse.is_object()) {
    config_error("{}: 'sparse_attention_config' is {}, an object is expected", place, formats::shown(sparse));
  }
  root.erase("sparse_attention_config");
  for (const auto& [theirs, ours] : {std::pair{"sparse_num_index_heads", "index_n_heads"},
                                     {"sparse_index_dim", "index_head_dim"},
                                     {"sparse_block_size", "index_block_size"},
                                     {"sparse_topk_blocks", "index_topk_blocks"},
                                     {"sparse_local_block", "index_local_blocks"}}) {
    if (!sparse.contains(theirs)) continue;
    root[ours] = sparse[theirs];
    sparse.erase(theirs);
  }
  if (const Json freq = sparse.value("sparse_attention_freq", Json()); !freq.is_null()) {
    if (absent("layer_types"))
      root["layer_types"] = words_of_numbers(freq, place, "sparse_attention_freq", kFullM3, kSparseM3);
    sparse.erase("sparse_attention_freq");
  }
  for (const auto& [name, value] : sparse.items()) root["sparse_attention_config." + name] = value;
}

void rewrite_m3_beside_pictures(Json& root, const std::string& place) {
  take_text_config(root, place);
  rewrite_m3(root, place);
}

// Transformers reads partial_rotary_factor alone.
void adopt_m3(Json& root, const std::string& place, std::vector<std::string>* warnings) {
  adopt_router_loss(root, place, warnings);
  const Json width = root.value("rotary_dim", Json()), head = root.value("head_dim", Json());
  if (warnings == nullptr || !width.is_number_integer() || !head.is_number_integer()) return;
  Json part = root.value("partial_rotary_factor", Json());
  for (const char* section : {"rope_scaling", "rope_parameters"}) {
    const Json keys = root.value(section, Json());
    if (part.is_null() && keys.is_object()) part = keys.value("partial_rotary_factor", Json());
  }
  const double turned = head.get<double>() * (part.is_number() ? part.get<double>() : 1.0);
  if (static_cast<int64_t>(turned) == width.get<int64_t>()) return;
  warnings->push_back(
      fmt::format("{}: 'rotary_dim' is {}, and by 'partial_rotary_factor' {} elements of a head are turned: the "
                  "latter is taken, as Transformers takes it",
                  place, formats::shown(width), static_cast<int64_t>(turned)));
}

// A word a layer, or nothing: then each has the first of the two.
std::vector<bool> second_of_words(const JsonKeys& keys, const char* name, int64_t layers, const char* first,
                                  const char* second) {
  const Json* words = keys.find(name);
  if (words == nullptr) return std::vector<bool>(static_cast<size_t>(layers), false);
  std::vector<bool> is_second;
  bool known = words->is_array() && std::ssize(*words) == layers;
  for (const Json& word : known ? *words : Json::array()) {
    known = known && (word == first || word == second);
    is_second.push_back(word == second);
  }
  if (!known) {
    config_error("{}: '{}' is {}: each of {} layers is '{}' or '{}'", keys.place(), name, formats::shown(*words),
                 layers, first, second);
  }
  return is_second;
}

void read_layer_types_m3(const JsonKeys& keys, ModelConfig& c) {
  const std::vector<bool> sparse = second_of_words(keys, "layer_types", c.num_hidden_layers, kFullM3, kSparseM3);
  const auto count = std::count(sparse.begin(), sparse.end(), true);
  c.index_pattern.clear();
  c.index_topk = 0;
  c.index_blocks = IndexBlocks::none;
  c.index_stage = model::IndexStage::sparse;
  if (count == 0) return;
  c.index_blocks = IndexBlocks::greatest;
  c.index_stage = model::IndexStage::off;
  c.index_topk = keys.whole("index_topk_blocks", kBlocksM3) * keys.whole("index_block_size", 128);
  if (count == std::ssize(sparse)) return;
  for (const bool each : sparse)
    c.index_pattern.push_back(static_cast<char>(each ? model::Selection::own : model::Selection::all));
}

void read_mlp_types_m3(const JsonKeys& keys, ModelConfig& c) {
  const std::vector<bool> dense = second_of_words(keys, "mlp_layer_types", c.num_hidden_layers, "sparse", "dense");
  const auto first = std::find(dense.begin(), dense.end(), false);
  c.first_k_dense_replace = first - dense.begin();
  c.mlp_pattern.clear();
  if (std::find(first, dense.end(), true) == dense.end()) return;
  c.first_k_dense_replace = 0;
  for (const bool each : dense) c.mlp_pattern.push_back(each ? '-' : 'E');
}

PublishedKey words_m3(const char* name, const char* ours, void (*read)(const JsonKeys&, ModelConfig&),
                      const char* (*word)(const ModelConfig&, int64_t)) {
  return {.name = name, .ours = ours, .read = read, .write = [word](const ModelConfig& c) {
            Written words = Written::array();
            for (int64_t l = 0; l < c.num_hidden_layers; ++l) words.push_back(word(c, l));
            return words;
          }};
}

PublishedKey shared_width_m3() {
  return {.name = "shared_intermediate_size",
          .ours = "shared_intermediate_size",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                const int64_t width = keys.whole("shared_intermediate_size", 3072);
                c.shared_intermediate_size = width == c.moe_intermediate_size ? 0 : width;
              },
          .write = [](const ModelConfig& c) { return Written(c.shared_width()); }};
}

PublishedKey topk_blocks() {
  return read_elsewhere(
      "index_topk_blocks",
      [](const ModelConfig& c) { return Written(c.selects() ? c.index_topk / c.index_block_size : kBlocksM3); },
      "index_topk");
}

bool holds_m3(const ModelConfig& c) {
  return c.is_grouped() && c.qk_norm && !c.qk_norm_all_heads && c.sigmoid_scores && c.topk_bias &&
         c.norm_topk_prob && c.zero_centered_norms && c.swiglu_limit > 0 && c.n_shared_experts == 1 &&
         c.sliding_window == 0 && !c.recurs() && !c.is_hybrid() && !c.shortcut_experts &&
         c.norm_places == model::NormPlaces::before && (!c.selects() || c.index_blocks == IndexBlocks::greatest);
}

// Gate above up, of a dense MLP or a shared expert.
std::optional<ReleasedPlace> stacked_m3(const std::string& name, const std::vector<int64_t>& shape, int64_t experts,
                                        const JoinedRows&) {
  if (experts > 0) return stacked_expert(name, shape, experts, "mlp.experts.");
  if (shape.size() != 2 || name.find(".mlp.") == std::string::npos) return std::nullopt;
  const int64_t width = shape[0];
  for (const auto& [part, first] : {std::pair{".gate_proj.weight", int64_t{0}}, {".up_proj.weight", width}}) {
    if (!name.ends_with(part)) continue;
    return ReleasedPlace{.name = respelt(name, {{part, ".gate_up_proj.weight"}}),
                         .shape = {2 * width, shape[1]},
                         .first = first * shape[1],
                         .row_step = shape[1],
                         .is_whole = false};
  }
  return std::nullopt;
}

std::string spelt_m3_beside_pictures(std::string name) {
  return spelt_ahead_of_model(
      respelt(spelt_block_sparse(std::move(name)), {{".gate.e_score_correction_bias", ".e_score_correction_bias"},
                                                    {".mlp.shared_experts.", ".block_sparse_moe.shared_experts."},
                                                    {".self_attn.indexer.", ".self_attn.index_"}}));
}

bool passed_over_m3(std::string_view name, const HasTensor& has) {
  if (name.starts_with("patch_merge_mlp.")) return true;
  if (name.starts_with("language_model.model.mtp.") || name.starts_with("language_model.mtp."))
    return has("language_model.model.norm.weight");
  return is_of_pictures(name, has);
}

ModelConfig base_m3() {
  ModelConfig c = grouped_base();
  c.qk_norm = c.sigmoid_scores = c.topk_bias = c.zero_centered_norms = true;
  c.rope_theta = 5e6;
  c.n_shared_experts = 1;
  c.swiglu_limit = 7;
  return c;
}

ModelConfig m3() {
  ModelConfig c = sized(base_m3(), {200064, 6144, 60, 12288, 64, 4, 524288, 128});
  give_experts(c, {128, 4, 3072});
  c.first_k_dense_replace = 0;
  c.partial_rotary_factor = 0.5;
  c.routed_scaling_factor = 2;
  c.index_topk = 2048;
  c.index_n_heads = 4;
  c.index_head_dim = c.index_block_size = 128;
  c.index_local_blocks = 1;
  c.index_blocks = IndexBlocks::greatest;
  c.index_stage = model::IndexStage::off;
  return c;
}

}  // namespace

Family minimax_m3() {
  Family f = grouped_family("MiniMaxM3VLForCausalLM", "minimax_m3_vl_text", 1e-6, base_m3());
  for (PublishedKey& each : f.keys) {
    if (each.name == "intermediate_size") each = key("intermediate_size", "moe_intermediate_size");
  }
  add_keys(f, {key("dense_intermediate_size", "intermediate_size", 12288),
               shared_width_m3(),
               partial_rotary_key(1.0),
               {.name = "rotary_dim", .write = [](const ModelConfig& c) { return Written(c.rotary_width()); }},
               key("num_local_experts", "n_routed_experts", 128),
               key("num_experts_per_tok", "num_experts_per_tok", 4),
               key("routed_scaling_factor", "routed_scaling_factor", 2.0),
               key("swiglu_alpha", "swiglu_alpha", 1.702),
               key("swiglu_limit", "swiglu_limit", 7.0),
               key("index_n_heads", "index_n_heads", 4),
               key("index_head_dim", "index_head_dim", 128),
               key("index_block_size", "index_block_size", 128),
               key("index_local_blocks", "index_local_blocks", 1),
               topk_blocks(),
               words_m3("layer_types", "index_pattern", read_layer_types_m3,
                        [](const ModelConfig& c, int64_t l) { return c.selects_in(l) ? kSparseM3 : kFullM3; }),
               words_m3("mlp_layer_types", "first_k_dense_replace", read_mlp_types_m3,
                        [](const ModelConfig& c, int64_t l) { return c.is_moe(l) ? "sparse" : "dense"; })});
  f.said = {"mlp_pattern", "index_blocks"};
  f.only = {above_zero("swiglu_limit"),
            is("use_qk_norm", true, "queries and keys are normed"),
            is("qk_norm_type", "per_head", "queries and keys are normed head by head"),
            is("use_gemma_norm", true, "norms multiply by 1 + their weight"),
            is("scoring_func", "sigmoid", "scores are sigmoids"),
            is("use_routing_bias", true, "the choice has a bias")};
  f.read_besides = {"num_experts", "n_shared_experts", "output_router_logits",  "router_aux_loss_coef",
                    "use_mtp",     "num_mtp_modules",  "mtp_transformer_layers"};
  f.rewrite = rewrite_m3;
  f.adopt = adopt_m3;
  f.holds = holds_m3;
  f.stacked = stacked_m3;
  f.presets = {{"minimax-m3", m3()}};
  return f;
}

// The released folders.
Family minimax_m3_beside_pictures() {
  Family f = beside_pictures(minimax_m3(), "MiniMaxM3SparseForConditionalGeneration", "minimax_m3_vl");
  f.rewrite = rewrite_m3_beside_pictures;
  f.spelt = spelt_m3_beside_pictures;
  f.stacked = nullptr;
  f.passed_over = passed_over_m3;
  return f;
}

}  // namespace heddle::config

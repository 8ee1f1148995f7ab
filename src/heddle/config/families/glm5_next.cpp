// GLM-5.3-Flash: most layers have Kimi Delta Attention with bounded decays, every fourth latent attention without
// positions, whose indexer chooses blocks of keys. The residual is several streams, of which the head reads the
// mean. SwiGLU is cut; router and experts are DeepSeek-V3's.
//
// A released folder has a text model in "text_config" beside a model of pictures, which is passed over, as is the
// layer of further tokens. A text model alone is written with its keys at the root, which Transformers reads too.
//
// Sources: Glm5NextTextConfig and modeling_glm5_next.py of Transformers 5, gone through key by key. Keys of the
// config.json file released with GLM-5.3-Flash are those that the tests of its public readers have.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/beside_pictures.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/layer_kinds.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::Recurrence;
using Written = nlohmann::ordered_json;

constexpr const char* kLinearGlm5 = "linear_attn_config";
constexpr double kBoundGlm5 = -5;
constexpr int64_t kEveryGlm5 = 4, kMostLayersGlm5 = 4096;

bool attends_glm5(const Json& word) { return word == "indexed_attention" || word == "full_attention"; }

void rewrite_glm5_next(Json& root, const std::string& place) {
  if (root.contains("text_config")) take_text_config(root, place);
  join_names(root, place, {{"num_local_experts", "n_routed_experts"}});
  Json& types = root["layer_types"];
  const Json layers = root.value("num_hidden_layers", Json());
  if (types.is_null() && layers.is_number_integer() && layers > 0 && layers <= kMostLayersGlm5) {
    for (int64_t l = 0; l < layers.get<int64_t>(); ++l)
      types.push_back((l + 1) % kEveryGlm5 == 0 ? "full_attention" : "linear_attention");
  }
  if (!types.is_array()) return;
  for (Json& each : types) {
    if (attends_glm5(each)) each = "full_attention";
  }
}

void adopt_glm5_next(Json& root, const std::string& place, std::vector<std::string>* warnings) {
  adopt_router_loss(root, place, warnings);
  if (const Json further = root.value("num_nextn_predict_layers", Json(0));
      warnings != nullptr && !further.is_null() && further != 0) {
    warnings->push_back(
        fmt::format("{}: layers that predict further tokens are not built for this family: taken as 0", place));
  }
}

// The release has an object in place of these keys, with the layers' numbers beside "layer_types".
void read_layers_glm5(const JsonKeys& keys, ModelConfig& c) {
  const Json* object = keys.find(kLinearGlm5);
  if (object != nullptr && !object->is_object())
    config_error("{}: '{}' is {}, an object is expected", keys.place(), kLinearGlm5, formats::shown(*object));
  const Json none = Json::object();
  const JsonKeys inner(object == nullptr ? none : *object, keys.place(), std::string(kLinearGlm5) + ".");
  inner.refuse_others({"head_dim", "num_heads", "short_conv_kernel_size", "gate_lower_bound", "safe_gate",
                       "kda_layers", "full_attn_layers"});
  c.linear_key_head_dim = c.linear_value_head_dim = inner.whole("head_dim", keys.whole("linear_head_dim", 128));
  c.linear_num_key_heads = c.linear_num_value_heads = inner.whole("num_heads", keys.whole("linear_num_heads", 64));
  c.linear_conv_kernel_dim = inner.whole("short_conv_kernel_size", keys.whole("linear_conv_kernel_dim", 4));
  // Null is no bound; in the object "safe_gate" gives it back, unless that is false.
  const bool has_none = keys.contains("linear_lower_bound") && keys.find("linear_lower_bound") == nullptr;
  double bound = has_none ? 0 : keys.number("linear_lower_bound", kBoundGlm5);
  if (inner.contains("gate_lower_bound")) bound = inner.number("gate_lower_bound", 0);
  if (object != nullptr && inner.boolean("safe_gate", true) && bound == 0) bound = kBoundGlm5;
  if (bound > 0) config_error("{}: the lower bound of decays is {}, less than 0 is expected", keys.place(), bound);
  c.linear_decay_least = bound;
  if (c.num_hidden_layers < 1 || c.num_hidden_layers > kMostLayersGlm5) return;  // refused with the bounds of keys
  set_layer_kinds(keys, attention_by_words(keys, c.num_hidden_layers), Recurrence::kimi_delta, c);
  for (const auto& [name, recurrent] : {std::pair{"kda_layers", true}, {"full_attn_layers", false}}) {
    const Json* list = inner.find(name);
    if (list == nullptr) continue;
    Json numbers = Json::array();
    for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
      if (c.is_recurrent(l) == recurrent) numbers.push_back(l);
    }
    if (*list != numbers)
      config_error("{}: '{}.{}' says something else than 'layer_types'", keys.place(), kLinearGlm5, name);
  }
}

Written write_layers_glm5(const ModelConfig& c) {
  Written words = Written::array();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    words.push_back(c.is_recurrent(l) ? "linear_attention" : "indexed_attention");
  return words;
}

// A layer without a recurrence has an indexer of its own: a recurrent one hands no choice on.
bool has_own_indexers(const Json& types, const Json& root) {
  const Json kinds = root.value("layer_types", Json());
  if (!types.is_array() || !kinds.is_array() || types.size() != kinds.size()) return false;
  for (size_t l = 0; l < types.size(); ++l) {
    if (kinds[l] != "linear_attention" && types[l] != "full") return false;
  }
  return true;
}

void read_limit_glm5(const JsonKeys& keys, ModelConfig& c) {
  c.experts_limit = c.mlp_limit = keys.number("swiglu_limit", 10);
  if (!(c.experts_limit > 0))
    config_error("{}: 'swiglu_limit' is {}, accepted: a number above 0", keys.place(), c.experts_limit);
}

Written write_limit_glm5(const ModelConfig& c) {
  return c.experts_limit > 0 ? Written(c.experts_limit) : Written(Written::value_t::discarded);
}

void read_epsilons_glm5(const JsonKeys& keys, ModelConfig& c) {
  c.rms_norm_eps = c.latent_norm_eps = keys.number("rms_norm_eps", 1e-5);
}

void derive_glm5_next(ModelConfig& c) {
  if (!c.recurs()) model::reset_foreign_keys(c);
}

std::string spelt_alone_glm5(std::string name) {
  return respelt(std::move(name), {{".attn_hc.", ".hc_attn_"}, {".ffn_hc.", ".hc_ffn_"}});
}

std::string spelt_glm5_next(std::string name) { return spelt_beside_pictures(spelt_alone_glm5(std::move(name))); }

// The model of pictures, and layers of further tokens behind the others.
bool passed_over_glm5(std::string_view name, const HasTensor& has) {
  if (name.starts_with("model.visual.")) return true;
  constexpr std::string_view kLayers = "model.language_model.layers.";
  if (!name.starts_with(kLayers)) return false;
  const size_t end = name.find('.', kLayers.size());
  return end != std::string_view::npos && has(std::string(name.substr(0, end)) + ".eh_proj.weight");
}

ModelConfig base_glm5_next() {
  ModelConfig c;
  c.positions = model::Positions::none;
  c.rms_norm_eps = c.latent_norm_eps = 1e-5;
  c.qk_rope_head_dim = 0;
  c.recurrence = Recurrence::kimi_delta;
  c.linear_decay_least = kBoundGlm5;
  c.hyper_connections = 4;
  c.hyper_connections_mean = true;
  c.limited_gates = true;
  c.index_topk = 2048;
  c.index_blocks = model::IndexBlocks::gated;
  c.index_stage = model::IndexStage::off;
  return c;
}

// Numbers are those of Transformers; the release's blocks have four keys.
ModelConfig glm_flash_5_3() {
  ModelConfig c = base_glm5_next();
  c.vocab_size = 154880;
  c.hidden_size = 4096;
  c.num_hidden_layers = 45;
  c.intermediate_size = 12288;
  c.max_position_embeddings = 1048576;
  c.num_attention_heads = 64;
  c.q_lora_rank = 1536;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = c.v_head_dim = 256;
  c.full_attention_interval = kEveryGlm5;
  c.linear_num_key_heads = c.linear_num_value_heads = 64;
  c.linear_key_head_dim = c.linear_value_head_dim = 128;
  c.index_n_heads = 32;
  c.index_head_dim = 128;
  c.index_block_size = 4;
  c.experts_limit = c.mlp_limit = 10;
  give_experts(c, {.experts = 288, .chosen = 8, .width = 2048});
  c.first_k_dense_replace = 3;
  c.routed_scaling_factor = 2.5;
  return c;
}

}  // namespace

Family glm5_next() {
  Family f;
  f.architecture = "Glm5NextForConditionalGeneration";
  f.model_type = "glm5_next";
  f.base = base_glm5_next();
  f.keys = {
      key("vocab_size", "vocab_size", 154880),
      key("hidden_size"),
      key("num_hidden_layers"),
      key("intermediate_size"),
      mlp_layer_types_key(3),
      fixed("hidden_act", "silu"),
      {.name = "rms_norm_eps", .ours = "rms_norm_eps", .read = read_epsilons_glm5},
      key("initializer_range", "initializer_range", 0.02),
      key("tie_word_embeddings", "tie_word_embeddings", false),
      key("max_position_embeddings", "max_position_embeddings", 1048576),
      key("num_attention_heads"),
      {.name = "num_key_value_heads", .write = [](const ModelConfig& c) { return Written(c.num_attention_heads); }},
      key("q_lora_rank", "q_lora_rank", 1536),
      key("kv_lora_rank", "kv_lora_rank", 512),
      key("qk_nope_head_dim", "qk_nope_head_dim", 256),
      key("qk_rope_head_dim", "qk_rope_head_dim", 0),
      key("v_head_dim", "v_head_dim", 256),
      {.name = "layer_types", .ours = "recurrence", .read = read_layers_glm5, .write = write_layers_glm5},
      read_elsewhere("linear_head_dim", [](const ModelConfig& c) { return Written(c.linear_key_head_dim); }),
      read_elsewhere("linear_num_heads", [](const ModelConfig& c) { return Written(c.linear_num_key_heads); }),
      read_elsewhere("linear_conv_kernel_dim",
                     [](const ModelConfig& c) { return Written(c.linear_conv_kernel_dim); }),
      read_elsewhere(
          "linear_lower_bound",
          [](const ModelConfig& c) {
            return c.linear_decay_least < 0 ? Written(c.linear_decay_least) : Written(nullptr);
          },
          "linear_decay_least"),
      key("index_topk", "index_topk", 2048),
      key("index_n_heads", "index_n_heads", 32),
      key("index_head_dim", "index_head_dim", 128),
      key("index_kpool", "index_block_size", 16),
      fixed("index_kpool_always_select_tail", true),
      key("hc_mult", "hyper_connections", 4),
      key("hc_eps", "hyper_connections_eps", 1e-6),
      key("hc_sinkhorn_iters", "hyper_connections_iterations", 20),
      {.name = "swiglu_limit", .read = read_limit_glm5, .write = write_limit_glm5},
      key("n_routed_experts", "n_routed_experts", 288),
      key("num_experts_per_tok", "num_experts_per_tok", 8),
      key("n_shared_experts", "n_shared_experts", 1, 0),
      key("moe_intermediate_size", "moe_intermediate_size", 2048),
      key("n_group", "n_group", 1),
      key("topk_group", "topk_group", 1),
      key("norm_topk_prob", "norm_topk_prob", true),
      key("routed_scaling_factor", "routed_scaling_factor", 2.5),
      fixed("num_nextn_predict_layers", 0),
  };
  add_keys(f, layer_kind_keys());
  f.said = {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
            "linear_conv_kernel_dim"};
  f.only = {{"indexer_types", has_own_indexers, "each layer with attention has an indexer of its own, 'full'"},
            is("index_kpool_always_select_tail", true, "a query always sees the keys behind the last whole block"),
            is("index_kpool_compress", true, "blocks have a key that is a weighted mean"),
            is("mla_use_nope", true, "nothing is turned"),
            is("mhc", true, "the residual has several streams"),
            is("scoring_func", "sigmoid", "scores are sigmoids"),
            is("topk_method", "noaux_tc", "only 'noaux_tc' is built"),
            is("moe_router_dtype", "float32", "the router's scores are in float32"),
            never("index_topk_pattern", "each layer with attention has an indexer of its own"),
            {"num_key_value_heads",
             [](const Json& v, const Json& root) { return v == root.value("num_attention_heads", v); },
             "latent attention has as many as heads"}};
  f.read_besides = {kLinearGlm5,
                    "first_k_dense_replace",
                    "num_local_experts",
                    "head_dim",
                    "qk_head_dim",
                    "indexer_rope_interleave",
                    "index_share_for_mtp_iteration",
                    "index_topk_freq",
                    "index_skip_topk_offset",
                    "router_aux_loss_coef"};
  f.rewrite = rewrite_glm5_next;
  f.adopt = adopt_glm5_next;
  f.derive = derive_glm5_next;
  f.holds = [](const ModelConfig& c) {
    return c.is_latent() && c.index_topk > 0 && c.index_blocks == model::IndexBlocks::gated;
  };
  f.spelt = spelt_glm5_next;
  f.also_spelt = spelt_alone_glm5;
  f.passed_over = passed_over_glm5;
  f.presets = {{"glm-5.3-flash", glm_flash_5_3()}};
  return f;
}

}  // namespace heddle::config

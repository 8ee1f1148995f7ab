// Llama 4: layers with rotary positions attend in chunks and norm queries and keys behind the rotation, every
// fourth layer turns nothing, sees all and scales its queries by their position. In every layer, or every second,
// one of many experts is chosen by a sigmoid, which multiplies what the expert reads; a shared one stands beside
// it.
//
// In its folders the matrices of a layer's experts are one tensor, each with the inputs first, columns of gate
// ahead of those of up. Released folders hold a model of pictures too.
//
// Sources: Llama4TextConfig and Llama4TextModel of Transformers 5, gone through key by key, whose defaults are the
// sizes of Scout; the config.json files released with Llama-4-Scout-17B-16E and Llama-4-Maverick-17B-128E.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/beside_pictures.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/turning_layers.h"
#include "heddle/config/families/window_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

constexpr int64_t kUnturnedLlama4 = 4, kChunkLlama4 = 8192;
constexpr const char *kChunked = "chunked_attention", *kWindowed = "sliding_attention", *kWhole = "full_attention";

ModelConfig base_llama4() {
  ModelConfig c = grouped_base();
  c.rope_interleave = c.sigmoid_scores = c.gates_on_inputs = c.qk_unit_norm = true;
  c.norm_topk_prob = false;
  c.n_shared_experts = 1;
  c.rope_theta = 5e5;
  return c;
}

// Chunks are windows in the words of other families. Layers that turn have them, where layer_types do not say it.
void name_chunks(Json& root, const std::string& place) {
  const Json chunk = root.contains("attention_chunk_size") ? root["attention_chunk_size"] : Json(kChunkLlama4);
  Json words = root.value("layer_types", Json());
  if (words.is_null()) {
    ModelConfig c = base_llama4();
    const JsonKeys keys(root, place, "");
    c.num_hidden_layers = keys.whole("num_hidden_layers");
    if (c.num_hidden_layers < 1 || c.num_hidden_layers > 4096) return;  // refused where it is read
    no_rope_layers_key(kUnturnedLlama4).read(keys, c);
    words = Json::array();
    for (int64_t l = 0; l < c.num_hidden_layers; ++l)
      words.push_back(!chunk.is_null() && c.turns_in(l) ? kChunked : kWhole);
  }
  if (words.is_array()) {
    for (Json& word : words) {
      if (word != kChunked && word != kWhole) {
        config_error("{}: 'layer_types' has {}, accepted: '{}' or '{}'", place, formats::shown(word), kChunked,
                     kWhole);
      }
      if (word == kChunked) word = kWindowed;
    }
  }
  root["layer_types"] = words;
  root["sliding_window"] = chunk;
}

std::vector<PublishedKey> chunk_keys() {
  std::vector<PublishedKey> keys = window_of_all_but_every_nth(kChunkLlama4, "", kUnturnedLlama4);
  for (PublishedKey& each : keys) {
    if (each.name == "sliding_window")
      each.write = [](const ModelConfig&) { return Written(Written::value_t::discarded); };
    if (each.name == "layer_types") {
      each.write = [](const ModelConfig& c) {
        Written words = Written::array();
        for (int64_t l = 0; l < c.num_hidden_layers; ++l) words.push_back(c.has_window(l) ? kChunked : kWhole);
        return words;
      };
    }
  }
  keys.push_back(read_elsewhere("attention_chunk_size", [](const ModelConfig& c) {
    return c.sliding_window > 0 ? Written(c.sliding_window) : Written();
  }));
  return keys;
}

// Released files have a number where others have true.
std::vector<PublishedKey> temperature_keys() {
  return {{.name = "attn_temperature_tuning",
           .ours = "query_scale_beta",
           .read =
               [](const JsonKeys& keys, ModelConfig& c) {
                 const Json* tunes = keys.find("attn_temperature_tuning");
                 const bool off = tunes != nullptr && (*tunes == false || *tunes == 0);
                 if (tunes != nullptr && !tunes->is_boolean() && !tunes->is_number_integer()) {
                   config_error("{}: 'attn_temperature_tuning' is {}, true or false is expected", keys.place(),
                                formats::shown(*tunes));
                 }
                 c.query_scale_beta = off ? 0 : keys.number("attn_scale", 0.1);
               },
           .write = [](const ModelConfig& c) { return Written(c.query_scale_beta != 0); }},
          read_elsewhere(
              "attn_scale",
              [](const ModelConfig& c) { return Written(c.query_scale_beta != 0 ? c.query_scale_beta : 0.1); }),
          key("floor_scale", "query_scale_length", 8192)};
}

void derive_llama4(ModelConfig& c) {
  c.window_chunks = c.sliding_window > 0;
  c.query_scale_unturned = c.query_scale_beta > 0;
  c.query_scale_first = c.query_scale_unturned ? 1 : 0;
}

std::string spelt_llama4(std::string name) {
  return respelt(std::move(name), {{".mlp.gate.weight", ".feed_forward.router.weight"},
                                   {".mlp.shared_experts.", ".feed_forward.shared_expert."},
                                   {".mlp.", ".feed_forward."}});
}

std::optional<ReleasedPlace> stacked_llama4(const std::string& name, const std::vector<int64_t>& shape,
                                            int64_t experts, const JoinedRows&) {
  return stacked_turned_expert(name, shape, experts, "feed_forward.experts.");
}

bool holds_llama4(const ModelConfig& c) {
  return c.is_grouped() && c.gates_on_inputs && c.has_experts() && !c.qk_norm && !c.recurs() && c.rope_interleave &&
         c.turns() && c.sigmoid_scores && !c.topk_bias && c.n_group == 1 && c.routed_scaling_factor == 1 &&
         c.n_shared_experts == 1 && c.shared_intermediate_size == 0 && !c.shared_expert_gate &&
         follows(c, derive_llama4) && !c.parallel_blocks;
}

ModelConfig sized_llama4(int64_t positions) {
  ModelConfig c = sized(base_llama4(), {202048, 5120, 48, 16384, 40, 8, positions, 128});
  give_experts(c, {.experts = 16, .chosen = 1, .width = 8192});
  c.rms_norm_eps = 1e-5;
  c.first_k_dense_replace = 0;
  c.no_rope_layer_interval = kUnturnedLlama4;
  c.sliding_window = kChunkLlama4;
  c.full_attention_interval = kUnturnedLlama4;
  c.query_scale_beta = 0.1;
  derive_llama4(c);
  return c;
}

ModelConfig scout() {
  ModelConfig c = sized_llama4(10485760);
  c.rope_scaling = model::RopeScaling{.factor = 16,
                                      .original_max_position_embeddings = 8192,
                                      .type = model::RopeType::llama3,
                                      .low_freq_factor = 1,
                                      .high_freq_factor = 1};
  return c;
}

ModelConfig maverick() {
  ModelConfig c = sized_llama4(1048576);
  c.n_routed_experts = 128;
  c.qk_unit_norm = false;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) c.mlp_pattern += l % 2 == 1 ? 'E' : '-';
  return c;
}

}  // namespace

Family llama4_text() {
  Family f = grouped_family("Llama4ForCausalLM", "llama4_text", 1e-5, base_llama4());
  drop_keys(f, {"intermediate_size"});
  replace_keys(f, {key("num_key_value_heads", "num_key_value_heads", 8)});
  for (PublishedKey& each : f.keys) {
    if (each.name != "head_dim") continue;
    each.read = [read = each.read](const JsonKeys& keys, ModelConfig& c) {
      read(keys, c);
      if (!keys.contains("head_dim")) c.head_dim = 128;
    };
  }
  add_keys(
      f, {key("intermediate_size", "moe_intermediate_size", 8192),
          key("intermediate_size_mlp", "intermediate_size", 16384),
          key("num_local_experts", "n_routed_experts", 16), key("num_experts_per_tok", "num_experts_per_tok", 1),
          key("use_qk_norm", "qk_unit_norm", true), own_attention_bias_key(), no_rope_layers_key(kUnturnedLlama4)});
  add_keys(f, chunk_keys());
  add_keys(f, moe_layers_keys());
  add_keys(f, temperature_keys());
  f.said = {"rotation_pattern", "window_chunks", "gates_on_inputs", "query_scale_first", "query_scale_unturned"};
  f.read_besides = {"num_experts",          "no_rope_layer_interval", "router_aux_loss_coef",
                    "output_router_logits", "for_llm_compressor",     "cache_implementation"};
  f.only = {above_zero("attention_chunk_size")};
  f.rewrite = [](Json& root, const std::string& place) {
    name_num_local_experts(root, place);
    name_chunks(root, place);
  };
  f.adopt = adopt_router_loss;
  f.derive = derive_llama4;
  f.holds = holds_llama4;
  f.spelt = spelt_llama4;
  f.stacked = stacked_llama4;
  f.presets = {{"llama-4-scout", scout()}, {"llama-4-maverick", maverick()}};
  return f;
}

namespace {

constexpr const char* kTextLlama4 = "language_model.";

std::optional<ReleasedPlace> stacked_llama4_beside_pictures(const std::string& name,
                                                            const std::vector<int64_t>& shape, int64_t experts,
                                                            const JoinedRows& joined) {
  std::optional<ReleasedPlace> place = stacked_llama4(name, shape, experts, joined);
  if (place) place->name.insert(0, kTextLlama4);
  return place;
}

}  // namespace

Family llama4_beside_pictures() {
  Family f = beside_pictures(llama4_text(), "Llama4ForConditionalGeneration", "llama4");
  f.also_architecture = "Llama4ForCausalLM";
  f.rewrite = [](Json& root, const std::string& place) {
    take_text_config(root, place);
    name_num_local_experts(root, place);
    name_chunks(root, place);
  };
  f.spelt = [](std::string name) { return kTextLlama4 + spelt_llama4(std::move(name)); };
  f.stacked = stacked_llama4_beside_pictures;
  f.passed_over = [](std::string_view name, const HasTensor&) {
    return name.starts_with("vision_model.") || name.starts_with("multi_modal_projector.");
  };
  return f;
}

}  // namespace heddle::config

// DeepSeek-V4 has compressed attention between hyper-connections. Every layer has experts; in the first layers a
// token's id chooses them.
//
// Sources: DeepseekV4Config and modeling_deepseek_v4.py of Transformers 5, gone through key by key, and its table
// of released names; the config.json files released with DeepSeek-V4-Flash and DeepSeek-V4-Pro.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/prediction_layers.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::Compression;
using model::ModelConfig;
using Written = nlohmann::ordered_json;

constexpr const char *kSparse = "compressed_sparse_attention", *kHeavy = "heavily_compressed_attention",
                     *kWindowAlone = "sliding_attention";

const char* word_of_layer(Compression kind) {
  return kind == Compression::sparse ? kSparse : kind == Compression::heavy ? kHeavy : kWindowAlone;
}

Json or_standard(const Json& root, const char* key, Json standard) {
  const Json value = root.value(key, Json());
  return value.is_null() ? standard : value;
}

int64_t layers_of(const Json& root, const std::string& place) {
  const Json layers = or_standard(root, "num_hidden_layers", 43);
  if (!layers.is_number_integer() || layers.get<int64_t>() < 1 || layers.get<int64_t>() > 4096) {
    config_error("{}: 'num_hidden_layers' is {}, accepted: 1 to 4096", place, formats::shown(layers));
  }
  return layers.get<int64_t>();
}

// A layer's ratio is the tokens of its entries, or 0 where it has a window alone. It says the layer's kind. Layers
// that predict further tokens have a window alone.
Json kinds_of_ratios(const Json& ratios, const Json& rates, int64_t layers, const std::string& place) {
  Json kinds = Json::array();
  for (int64_t l = 0; l < layers; ++l) {
    const Json ratio = ratios.is_array() && l < std::ssize(ratios) ? ratios[static_cast<size_t>(l)] : Json();
    if (ratio == 0) {
      kinds.push_back(kWindowAlone);
    } else if (ratio == rates.value(kSparse, Json(4))) {
      kinds.push_back(kSparse);
    } else if (ratio == rates.value(kHeavy, Json(128))) {
      kinds.push_back(kHeavy);
    } else {
      config_error(
          "{}: 'compress_ratios' has {} for layer {}; accepted: 0, and the tokens of an entry in "
          "'compress_rates', 4 and 128 where it is absent",
          place, formats::shown(ratio), l);
    }
  }
  for (size_t l = static_cast<size_t>(layers); ratios.is_array() && l < ratios.size(); ++l) {
    if (ratios[l] != 0) {
      config_error("{}: 'compress_ratios' has {} for layer {}, which predicts a further token; accepted: 0", place,
                   formats::shown(ratios[l]), l);
    }
  }
  return kinds;
}

// The configuration of Transformers has these layers where the file names none.
Json usual_kinds(int64_t layers) {
  Json kinds = Json::array();
  for (int64_t l = 0; l < layers; ++l) kinds.push_back(l >= 2 && (l - 2) % 2 == 1 ? kSparse : kHeavy);
  return kinds;
}

// Each kind of layer has rotary positions of its own. They become a base each, and `rope_scaling` of layers with
// entries.
void flatten_rotation(Json& root, const std::string& place) {
  const Json sections = root.value("rope_parameters", Json());
  const bool apart = sections.is_object() && sections.value("main", Json()).is_object() &&
                     sections.value("compress", Json()).is_object();
  Json stretched = apart ? sections["compress"] : root.value("rope_scaling", Json());
  if (!apart && stretched.is_null() && sections.is_object()) stretched = sections;
  root.erase("rope_parameters");
  root.erase("rope_scaling");
  if (apart) {
    const Json& main = sections["main"];
    if (main.value("rope_type", Json("default")) != "default") {
      config_error(
          "{}: 'rope_parameters.main.rope_type' is {}: positions of layers with a window alone are not "
          "stretched, accepted: \"default\"",
          place, formats::shown(main["rope_type"]));
    }
    if (main.contains("rope_theta")) root["rope_theta"] = main["rope_theta"];
    if (stretched.contains("rope_theta")) root["compress_rope_theta"] = stretched["rope_theta"];
  }
  if (!stretched.is_object()) return;
  for (const char* key : {"partial_rotary_factor", "rope_theta"}) stretched.erase(key);
  const Json type = stretched.value("rope_type", stretched.value("type", Json("default")));
  if (type == "default") return;
  // The released code does not multiply cosines by a factor.
  if (type == "yarn" && stretched.value("attention_factor", Json()).is_null()) stretched["attention_factor"] = 1.0;
  root["rope_scaling"] = stretched;
}

void rewrite_v4(Json& root, const std::string& place) {
  join_names(root, place, {{"num_local_experts", "n_routed_experts"}});
  const int64_t layers = layers_of(root, place);
  Json rates = or_standard(root, "compress_rates", Json::object());
  if (!rates.is_object())
    config_error("{}: 'compress_rates' is {}, accepted: an object", place, formats::shown(rates));
  for (const auto& [other, ours] : {std::pair{"compress_rate_csa", kSparse}, {"compress_rate_hca", kHeavy}}) {
    if (const Json value = root.value(other, Json()); !value.is_null()) rates[ours] = value;
    root.erase(other);
  }
  root["compress_rates"] = rates;
  const Json ratios = root.value("compress_ratios", Json());
  if (root.value("layer_types", Json()).is_null())
    root["layer_types"] = ratios.is_null() ? usual_kinds(layers) : kinds_of_ratios(ratios, rates, layers, place);
  root.erase("compress_ratios");
  if (root.value("mlp_layer_types", Json()).is_null()) {
    const Json hashed = or_standard(root, "num_hash_layers", 3);
    Json words = Json::array();
    for (int64_t l = 0; l < layers; ++l)
      words.push_back(hashed.is_number_integer() && l < hashed.get<int64_t>() ? "hash_moe" : "moe");
    root["mlp_layer_types"] = words;
  }
  root.erase("num_hash_layers");
  const Json part = root.value("partial_rotary_factor", Json()), width = or_standard(root, "head_dim", 512);
  if (root.value("qk_rope_head_dim", Json()).is_null() && width.is_number_integer()) {
    const double factor = part.is_number() ? part.get<double>() : 64.0 / 512;
    root["qk_rope_head_dim"] = static_cast<int64_t>(static_cast<double>(width.get<int64_t>()) * factor);
  }
  root.erase("partial_rotary_factor");
  flatten_rotation(root, place);
}

void read_rotation_v4(const JsonKeys& keys, ModelConfig& c) {
  Json of_entries{{"rope_theta", keys.number("compress_rope_theta", 160000)},
                  {"max_position_embeddings", c.max_position_embeddings}};
  if (const Json* scaling = keys.find("rope_scaling")) of_entries["rope_scaling"] = *scaling;
  read_rope(JsonKeys(of_entries, keys.place(), ""), c);
}

void read_kinds(const JsonKeys& keys, ModelConfig& c) {
  const Json* words = keys.find("layer_types");
  if (words == nullptr || !words->is_array() || std::ssize(*words) < c.num_hidden_layers) {
    config_error("{}: 'layer_types' is {}: a word for each of {} layers is needed", keys.place(),
                 words == nullptr ? "absent" : formats::shown(*words), c.num_hidden_layers);
  }
  c.compression_pattern.clear();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    const Json& word = (*words)[static_cast<size_t>(l)];
    const auto kinds = {Compression::window, Compression::sparse, Compression::heavy};
    const auto* kind =
        std::find_if(kinds.begin(), kinds.end(), [&](Compression each) { return word == word_of_layer(each); });
    if (kind == kinds.end()) {
      config_error("{}: 'layer_types' has {} for layer {}; accepted: '{}', '{}', '{}'", keys.place(),
                   formats::shown(word), l, kWindowAlone, kSparse, kHeavy);
    }
    c.compression_pattern += static_cast<char>(*kind);
  }
}

void read_rates(const JsonKeys& keys, ModelConfig& c) {
  const Json none = Json::object(), *given = keys.find("compress_rates");
  const JsonKeys rates(given == nullptr ? none : *given, keys.place(), "compress_rates.");
  c.sparse_rate = rates.whole(kSparse, 4);
  c.heavy_rate = rates.whole(kHeavy, 128);
}

void read_hashed(const JsonKeys& keys, ModelConfig& c) {
  const Json* words = keys.find("mlp_layer_types");
  bool ordered = words != nullptr && words->is_array() && std::ssize(*words) >= c.num_hidden_layers;
  int64_t hashed = 0;
  for (int64_t l = 0; ordered && l < c.num_hidden_layers; ++l) {
    const Json& word = (*words)[static_cast<size_t>(l)];
    const bool by_id = word == "hash_moe";
    ordered = (by_id || word == "moe") && (!by_id || hashed == l);
    hashed += by_id ? 1 : 0;
  }
  if (!ordered) {
    config_error(
        "{}: 'mlp_layer_types' is {}: of {} layers some first ones may be 'hash_moe', the others are 'moe'",
        keys.place(), words == nullptr ? "absent" : formats::shown(*words), c.num_hidden_layers);
  }
  c.num_hash_layers = hashed;
}

void read_scores(const JsonKeys& keys, ModelConfig& c) {
  const std::string word = keys.word("scoring_func", "sqrtsoftplus");
  if (word != "sqrtsoftplus" && word != "sigmoid") {
    config_error("{}: 'scoring_func' is \"{}\", accepted: \"sqrtsoftplus\", \"sigmoid\"", keys.place(),
                 escaped(word, 60));
  }
  c.sigmoid_scores = word == "sigmoid";
  c.softplus_scores = !c.sigmoid_scores;
}

void read_limit(const JsonKeys& keys, ModelConfig& c) {
  c.experts_limit = c.mlp_limit = keys.number("swiglu_limit", 10);
  if (!(c.experts_limit > 0)) {
    config_error("{}: 'swiglu_limit' is {}, accepted: a number above 0", keys.place(), c.experts_limit);
  }
}

void read_window_theta(const JsonKeys& keys, ModelConfig& c) {
  c.window_rope_theta = keys.number("rope_theta", 10000);
}
void read_streams_v4(const JsonKeys& keys, ModelConfig& c) { c.hyper_connections = keys.whole("hc_mult", 4); }

// A file of the family cannot say 0: such a value is left to the object "heddle".
template <class T>
Written above_zero_alone(T value) {
  return value > 0 ? Written(value) : Written(Written::value_t::discarded);
}

// There is no indexer where no layer chooses entries.
void derive_v4(ModelConfig& c) {
  if (!c.has_compression(Compression::sparse)) c.index_topk = 0;
}

template <class Word>
Written words_of_all(const ModelConfig& c, const Word& word) {
  Written words = Written::array();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) words.push_back(word(l));
  return words;
}

constexpr std::string_view kFurther = "mtp.layers.";

// Transformers writes these names. Its spelling drops the word of the keys' norm, and keeps that of the queries'.
// It has no layers of further tokens: those have the names of DeepSeek's own files.
std::string spelt_v4(std::string name) {
  if (name == "lm_head.weight") return "head.weight";
  if (name.starts_with(kFurther)) {
    name = spelt_v4("model.layers." + name.substr(kFurther.size()));
    return respelt(std::move(name), {{"model.layers.", "mtp."},
                                     {".shared_head.norm.", ".norm."},
                                     {".hc_head.hc_", ".hc_head_"},
                                     {".attn.norm.", ".attn.kv_norm."}});
  }
  const bool in_layer = name.starts_with("model.layers.");
  if (!in_layer) return name;
  if (name.find(".mlp.") != std::string::npos) {
    return respelt(std::move(name), {{".e_score_correction_bias", ".bias"},
                                     {".gate_proj.", ".w1."},
                                     {".down_proj.", ".w2."},
                                     {".up_proj.", ".w3."},
                                     {".mlp.", ".ffn."}});
  }
  return respelt(std::move(name), {{".input_layernorm.", ".attn_norm."},
                                   {".post_attention_layernorm.", ".ffn_norm."},
                                   {".attn_hc.", ".hc_attn_"},
                                   {".ffn_hc.", ".hc_ffn_"},
                                   {".compressor.indexer.q_b_proj.", ".indexer.wq_b."},
                                   {".compressor.indexer.scorer.weights_proj.", ".indexer.weights_proj."},
                                   {".compressor.indexer.", ".indexer.compressor."},
                                   {".position_bias", ".ape"},
                                   {".q_a_proj.", ".wq_a."},
                                   {".q_b_proj.", ".wq_b."},
                                   {".q_a_norm.", ".q_norm."},
                                   {".kv_norm.", ".norm."},
                                   {".kv_proj.", ".wkv."},
                                   {".gate_proj.", ".wgate."},
                                   {".o_a_proj.", ".wo_a."},
                                   {".o_b_proj.", ".wo_b."},
                                   {".sinks", ".attn_sink"},
                                   {".self_attn.", ".attn."}});
}

// DeepSeek's own files have these names.
std::string released_v4(std::string name) {
  if (name == kEmbedding) return "embed.weight";
  name = respelt(spelt_v4(std::move(name)), {{".attn.norm.", ".attn.kv_norm."}, {"model.hc_head.hc_", "hc_head_"}});
  constexpr std::string_view kModel = "model.";
  return name.starts_with(kModel) ? name.substr(kModel.size()) : name;
}

bool predicts_further(std::string_view name, const HasTensor&) { return name.starts_with("mtp."); }

void count_further_v4(ModelConfig& c, const std::string& path, std::vector<std::string>* warnings) {
  count_prediction_layers(c, path, warnings, "mtp.0.");
}

ModelConfig v4_base() {
  ModelConfig c;
  c.attention = ModelConfig::Attention::compressed;
  c.attention_sinks = true;
  c.limited_gates = true;
  c.index_stage = model::IndexStage::off;
  c.first_k_dense_replace = 0;
  c.n_shared_experts = 1;
  c.sigmoid_scores = false;
  c.softplus_scores = true;
  c.bias_update_rate = 0.001;
  c.hyper_connections = 4;
  c.num_nextn_predict_layers = 1;
  return c;
}

ModelConfig v4_flash() {
  ModelConfig c = v4_base();
  c.vocab_size = 129280;
  c.hidden_size = 4096;
  c.num_hidden_layers = 43;
  c.compression_pattern = "WW";
  while (std::ssize(c.compression_pattern) < c.num_hidden_layers)
    c.compression_pattern += c.compression_pattern.back() == 'S' ? 'H' : 'S';
  c.max_position_embeddings = 1048576;
  c.num_attention_heads = 64;
  c.q_lora_rank = 1024;
  c.head_dim = 512;
  c.qk_rope_head_dim = 64;
  c.o_groups = 8;
  c.o_lora_rank = 1024;
  c.index_n_heads = 64;
  c.index_head_dim = 128;
  c.index_topk = 512;
  c.sliding_window = 128;
  c.window_rope_theta = 10000;
  c.rope_theta = 160000;
  c.rope_scaling =
      model::RopeScaling{.factor = 16, .original_max_position_embeddings = 65536, .attention_factor = 1};
  c.experts_limit = c.mlp_limit = 10;
  c.n_routed_experts = 256;
  c.num_experts_per_tok = 6;
  c.moe_intermediate_size = 2048;
  c.num_hash_layers = 3;
  c.routed_scaling_factor = 1.5;
  return c;
}

ModelConfig v4_pro() {
  ModelConfig c = v4_flash();
  c.hidden_size = 7168;
  c.num_hidden_layers = 61;
  c.compression_pattern = "HH";
  while (std::ssize(c.compression_pattern) < c.num_hidden_layers)
    c.compression_pattern += c.compression_pattern.back() == 'S' ? 'H' : 'S';
  c.num_attention_heads = 128;
  c.q_lora_rank = 1536;
  c.o_groups = 16;
  c.index_topk = 1024;
  c.n_routed_experts = 384;
  c.moe_intermediate_size = 3072;
  c.routed_scaling_factor = 2.5;
  return c;
}

Family deepseek_v4_keys() {
  Family f;
  f.architecture = "DeepseekV4ForCausalLM";
  f.model_type = "deepseek_v4";
  f.base = v4_base();
  f.said = {"heavy_rate"};
  f.keys = {
      key("vocab_size", "vocab_size", 129280),
      key("hidden_size", "hidden_size", 4096),
      key("num_hidden_layers", "num_hidden_layers", 43),
      {.name = "layer_types",
       .ours = "compression_pattern",
       .read = read_kinds,
       .write =
           [](const ModelConfig& c) {
             return words_of_all(c, [&](int64_t l) { return word_of_layer(c.compression_of(l)); });
           }},
      {.name = "compress_rates",
       .ours = "sparse_rate",
       .read = read_rates,
       .write =
           [](const ModelConfig& c) {
             return Written{{kSparse, c.sparse_rate}, {kHeavy, c.heavy_rate}};
           }},
      fixed("hidden_act", "silu"),
      key("rms_norm_eps", "rms_norm_eps", 1e-6),
      key("initializer_range", "initializer_range", 0.02),
      key("tie_word_embeddings", "tie_word_embeddings", false),
      key("max_position_embeddings", "max_position_embeddings", 1048576),
      fixed("attention_bias", false),
      fixed("attention_dropout", 0.0),
      key("num_attention_heads", "num_attention_heads", 64),
      fixed("num_key_value_heads", 1),
      key("head_dim", "head_dim", 512),
      key("q_lora_rank", "q_lora_rank", 1024),
      key("qk_rope_head_dim", "qk_rope_head_dim", 64),
      key("o_groups", "o_groups", 8),
      key("o_lora_rank", "o_lora_rank", 1024),
      key("sliding_window", "sliding_window", 128),
      {.name = "rope_theta",
       .read = read_window_theta,
       .write = [](const ModelConfig& c) { return above_zero_alone(c.window_rope_theta); }},
      {.name = "compress_rope_theta",
       .ours = "rope_theta",
       .read = read_rotation_v4,
       .write = [](const ModelConfig& c) { return Written(c.rope_theta); }},
      rope_scaling_key(),
      key("index_n_heads", "index_n_heads", 64),
      key("index_head_dim", "index_head_dim", 128),
      key("index_topk", "index_topk", 512),
      {.name = "hc_mult",
       .read = read_streams_v4,
       .write = [](const ModelConfig& c) { return above_zero_alone(c.hyper_connections); }},
      key("hc_sinkhorn_iters", "hyper_connections_iterations", 20),
      key("hc_eps", "hyper_connections_eps", 1e-6),
      key("n_routed_experts", "n_routed_experts", 256),
      key("num_experts_per_tok", "num_experts_per_tok", 6),
      fixed("n_shared_experts", 1),
      key("moe_intermediate_size", "moe_intermediate_size", 2048),
      {.name = "mlp_layer_types",
       .ours = "num_hash_layers",
       .read = read_hashed,
       .write =
           [](const ModelConfig& c) {
             return words_of_all(c, [&](int64_t l) { return l < c.num_hash_layers ? "hash_moe" : "moe"; });
           }},
      fixed("norm_topk_prob", true),
      {.name = "scoring_func",
       .read = read_scores,
       .write = [](const ModelConfig& c) { return Written(c.sigmoid_scores ? "sigmoid" : "sqrtsoftplus"); }},
      key("routed_scaling_factor", "routed_scaling_factor", 1.5),
      {.name = "swiglu_limit",
       .read = read_limit,
       .write = [](const ModelConfig& c) { return above_zero_alone(c.experts_limit); }},
      key("num_nextn_predict_layers", "num_nextn_predict_layers", 1),
  };
  f.only = {
      is("num_key_value_heads", 1, "heads share one key"),
      is("n_shared_experts", 1, "the family has one"),
      is("norm_topk_prob", true, "the family's gates are divided by their sum"),
      is("topk_method", "noaux_tc", "only 'noaux_tc' is built"),
      is("n_group", 1, "the family chooses among all experts"),
      is("topk_group", 1, "the family chooses among all experts"),
  };
  f.read_besides = {"num_local_experts", "compress_ratios",      "compress_rate_csa",
                    "compress_rate_hca", "num_hash_layers",      "expert_dtype",
                    "qk_nope_head_dim",  "router_aux_loss_coef", "scale_fmt"};
  f.rewrite = rewrite_v4;
  f.adopt = adopt_router_loss;
  f.complete = count_further_v4;
  f.derive = derive_v4;
  f.spelt = spelt_v4;
  f.also_spelt = released_v4;
  f.passed_over = predicts_further;
  f.holds = [](const ModelConfig& c) { return c.is_compressed(); };
  return f;
}

}  // namespace

Family deepseek_v4() {
  Family f = deepseek_v4_keys();
  f.presets = {{"deepseek-v4-flash", v4_flash()}, {"deepseek-v4-pro", v4_pro()}};
  return f;
}

}  // namespace heddle::config

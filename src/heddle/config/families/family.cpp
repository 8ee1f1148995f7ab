#include "heddle/config/families/family.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/config/families/absent_sizes.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

bool is_off(const Json& value) { return value == false || (value.is_number() && value == 0); }

// Weights in the forms of formats/quantised.h. Older files of Model Optimizer name it as the producer alone.
bool reads_numbers_of(const Json& quantisation) {
  constexpr const char* kRead[] = {"fp8", "mxfp4", "mxfp8", "compressed-tensors", "modelopt", "fbgemm_fp8"};
  if (!quantisation.is_object()) return false;
  Json method = quantisation.value("quant_method", Json());
  const Json producer = quantisation.value("producer", Json());
  if (method.is_null() && producer.is_object()) method = producer.value("name", Json());
  return std::any_of(std::begin(kRead), std::end(kRead), [&](const char* read) { return method == read; });
}

bool rotates_whole_heads(const Json& value, const Json&) {
  return !value.is_object() || value.value("partial_rotary_factor", Json(1)) == 1;
}

// Settings that no family that is built may ask for.
const std::vector<Only>& of_every_family() {
  static const std::vector<Only> all{
      {"hidden_act", [](const Json& v, const Json&) { return v == "silu" || v == "swish"; },
       "only 'silu' is built"},
      off("add_cross_attention", "attention to another model is not built"),
      off("attention_bias", "biases in attention are not built"),
      off("mlp_bias", "biases in MLPs are not built"),
      off("attention_dropout", "dropout is not built"),
      off("hidden_dropout", "dropout is not built"),
      off("embd_pdrop", "dropout is not built"),
      off("resid_pdrop", "dropout is not built"),
      is("partial_rotary_factor", 1, "heads rotated in part by it are not built"),
      {"rope_parameters", rotates_whole_heads, "heads rotated in part by partial_rotary_factor are not built",
       "partial_rotary_factor"},
      {"rope_scaling", rotates_whole_heads, "heads rotated in part by partial_rotary_factor are not built",
       "partial_rotary_factor"},
      off("use_sliding_window", "attention in windows is not built"),
      {"sliding_window",
       [](const Json&, const Json& root) { return root.contains("use_sliding_window"); },  // then that one decides
       "attention in windows is not built"},
      {"layer_types",
       [](const Json& v, const Json& root) {
         return v.is_array() && v.size() == root.value("num_hidden_layers", Json()) &&
                std::all_of(v.begin(), v.end(), [](const Json& t) { return t == "full_attention"; });
       },
       "only 'full_attention' for each layer is built"},
      never("attn_logit_softcapping", "capped logits are not built"),
      never("final_logit_softcapping", "capped logits are not built"),
      off("router_jitter_noise", "noise in the router is not built"),
      {"quantization_config", [](const Json& value, const Json&) { return reads_numbers_of(value); },
       "quantised weights are not read; convert the model to BF16 first"},
  };
  return all;
}

// Keys of storage, of generation, of other programs' parallelism, of who wrote the file: nothing of the
// computation.
constexpr const char* kHarmless[] = {
    "architectures", "auto_map", "torch_dtype", "dtype", "transformers_version", "_name_or_path", "name_or_path",
    "_attn_implementation", "_attn_implementation_autoset", "_experts_implementation", "use_cache", "bos_token_id",
    "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "decoder_start_token_id", "pretraining_tp",
    "ep_size", "output_attentions", "output_hidden_states", "output_router_logits", "return_dict",
    "return_dict_in_generate", "chunk_size_feed_forward", "is_encoder_decoder", "is_decoder", "id2label",
    "label2id", "num_labels", "problem_type", "task_specific_params", "tokenizer_class", "prefix",
    "max_window_layers", "gradient_checkpointing", "base_model_tp_plan", "base_model_pp_plan", "base_model_ep_plan",
    "max_length", "min_length", "temperature", "top_p", "top_k", "do_sample", "unsloth_version", "unsloth_fixed",
    "use_mrope",
    // Every file of Transformers before 5 may have these, within text_config too.
    "bad_words_ids", "begin_suppress_tokens", "cross_attention_hidden_size", "diversity_penalty", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id",
    "forced_eos_token_id", "length_penalty", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
    "num_return_sequences", "output_scores", "pruned_heads", "remove_invalid_values", "repetition_penalty",
    "suppress_tokens", "tf_legacy_loss", "tie_encoder_decoder", "torchscript", "typical_p", "use_bfloat16"};

template <size_t n>
bool is_among(const std::string& key, const char* const (&list)[n]) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

}  // namespace

Only is(const char* name, Json value, const char* reason) {
  return {name, [value = std::move(value)](const Json& v, const Json&) { return v == value; }, reason};
}
Only off(const char* name, const char* reason) {
  return {name, [](const Json& v, const Json&) { return is_off(v); }, reason};
}
Only never(const char* name, const char* reason) {
  return {name, [](const Json&, const Json&) { return false; }, reason};
}

Only above_zero(const char* name) {
  return {name, [](const Json& v, const Json&) { return v.is_number() && v > 0; }, "a number above 0 is expected"};
}

PublishedKey key(const char* name) { return key(name, name); }
PublishedKey key(const char* name, const char* ours, Json standard, Json where_null) {
  HEDDLE_CHECK(model::find_key(ours) != nullptr, "no key '{}'", ours);
  return {.name = name, .ours = ours, .standard = std::move(standard), .where_null = std::move(where_null)};
}
PublishedKey rope_theta_key() { return {.name = "rope_theta", .ours = "rope_theta", .read = read_rope}; }
PublishedKey partial_rotary_key(double standard) {
  return {
      .name = "partial_rotary_factor",
      .ours = "partial_rotary_factor",
      .read = [standard](const JsonKeys& keys, model::ModelConfig& c) { read_partial_rotary(keys, standard, c); }};
}
PublishedKey rope_scaling_key() { return {.name = "rope_scaling", .write = rope_scaling_json}; }
PublishedKey fixed(const char* name, Json value) {
  return {.name = name,
          .write = [value = nlohmann::ordered_json(value)](const model::ModelConfig&) { return value; }};
}

PublishedKey read_elsewhere(const char* name,
                            std::function<nlohmann::ordered_json(const model::ModelConfig&)> write,
                            const char* ours) {
  return {
      .name = name, .ours = ours, .read = [](const JsonKeys&, model::ModelConfig&) {}, .write = std::move(write)};
}

void add_keys(Family& family, const std::vector<PublishedKey>& more) {
  family.keys.insert(family.keys.end(), more.begin(), more.end());
}
void replace_keys(Family& family, const std::vector<PublishedKey>& others) {
  for (const PublishedKey& other : others) {
    const auto at = std::find_if(family.keys.begin(), family.keys.end(),
                                 [&](const PublishedKey& each) { return each.name == other.name; });
    HEDDLE_CHECK(at != family.keys.end(), "the family has no key '{}'", other.name);
    *at = other;
  }
}
void require_keys(Family& family, std::initializer_list<const char*> names) {
  for (const char* name : names) replace_keys(family, {key(name)});
}
void drop_keys(Family& family, const std::vector<std::string>& names) {
  std::erase_if(family.keys, [&](const PublishedKey& each) {
    return std::find(names.begin(), names.end(), each.name) != names.end();
  });
}

namespace {

std::vector<Family> all_families() {
  return {
      deepseek_v4(),
      hy_v4(),
      hy_v4_beside_pictures(),
      axk2(),
      axk1(),
      dots3_note_text(),
      dots3_note(),
      mistral4(),
      mistral_beside_pictures(),
      ministral3_beside_pictures(),
      mistral4_beside_pictures(),
      longcat_flash(),
      bailing_hybrid(),
      bailing_moe_v3(),
      kimi_linear(),
      glm5_next(),
      deepseek_v32(),
      glm_moe_dsa(),
      kimi_k2(),
      kimi_k25(),
      glm4_moe_lite(),
      deepseek_v2(),
      deepseek_v3(),
      sarvam_mla(),
      youtu(),
      nemotron_h(),
      falcon_h1(),
      bamba(),
      lfm3(),
      lfm2(),
      lfm2_moe(),
      olmo_hybrid(),
      gpt2(),
      cohere2_moe(),
      cohere2(),
      cohere(),
      llama4_text(),
      llama4_beside_pictures(),
      phimoe(),
      gemma4(),
      gemma4_beside_pictures(),
      gemma4_unified_text(),
      gemma4_unified(),
      gemma3(),
      gemma3_beside_pictures(),
      gemma2(),
      gemma(),
      olmo3(),
      olmo2(),
      olmoe(),
      flex_olmo(),
      minimax(),
      minimax_text_01(),
      minimax_m2(),
      minimax_m3(),
      minimax_m3_beside_pictures(),
      mimo_v2_flash(),
      qwen4_exp(),
      qwen4_exp_beside_pictures(),
      qwen3_5(),
      qwen3_5_moe(),
      qwen3_5_beside_pictures(),
      qwen3_5_moe_beside_pictures(),
      qwen3_next(),
      qwen2_moe(),
      hunyuan_moe(),
      hunyuan_dense(),
      granite_moe_hybrid(),
      granite_swa(),
      granite_moe_swa(),
      granite(),
      granite_moe(),
      granite_moe_shared(),
      glm4(),
      glm(),
      ernie4_5(),
      ernie4_5_moe(),
      seed_oss(),
      qwen2(),
      phi3(),
      ministral3(),
      mistral(),
      cwm(),
      smollm3(),
      exaone4(),
      llama(),
      gpt_oss(),
      mixtral(),
      exaone_moe(),
      afmoe(),
      laguna(),
      mellum(),
      kolibri1(),
      step3p5(),
      bailing_moe(),
      bailing_moe_v2(),
      dots1(),
      hy_v3(),
      sarvam_moe(),
      solar_open(),
      glm4_moe(),
      qwen3(),
      qwen3_moe(),
      qwen2_vl(),
      qwen2_5_vl(),
      qwen3_vl(),
      qwen3_vl_moe(),
  };
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> each = all_families();
    for (Family& family : each) give_absent_sizes(family);
    return each;
  }();
  return all;
}

namespace {

// A file that says nothing of the text model means the first family of such folders.
bool is_text_type(const Family& family, const Json& root) {
  const Json text = root.value("text_config", Json());
  const Json type = text.is_object() ? text.value("model_type", Json()) : Json();
  return family.text_type.empty() || type.is_null() || type == family.text_type;
}

}  // namespace

const Family* find_family(const Json& root) {
  const Json type = root.value("model_type", Json()), list = root.value("architectures", Json());
  const Json architecture = list.is_array() && list.size() == 1 ? list[0] : Json();
  if (type.is_null() && architecture.is_null()) return nullptr;
  const auto at = std::find_if(families().begin(), families().end(), [&](const Family& family) {
    return (type.is_null() || type == family.model_type) && is_text_type(family, root) &&
           (architecture.is_null() || architecture == family.architecture ||
            (!family.also_architecture.empty() && architecture == family.also_architecture));
  });
  return at == families().end() ? nullptr : &*at;
}

std::string why_no_family(const Json& root) {
  const Json type = root.value("model_type", Json()), list = root.value("architectures", Json());
  std::vector<std::string> beside, texts;
  bool is_named = false;
  for (const Family& family : families()) {
    if (type != family.model_type) continue;
    is_named |= list.is_null() || list == Json::array({family.architecture}) ||
                list == Json::array({family.also_architecture});
    for (const std::string& name : {family.architecture, family.also_architecture})
      if (!name.empty() && std::find(beside.begin(), beside.end(), name) == beside.end()) beside.push_back(name);
    if (!family.text_type.empty()) texts.push_back(family.text_type);
  }
  const Json text = root.value("text_config", Json());
  if (is_named && text.is_object()) {
    return fmt::format("'text_config.model_type' is {} beside 'model_type' {}, accepted: '{}'",
                       formats::shown(text.value("model_type", Json())), formats::shown(type),
                       fmt::join(texts, "', '"));
  }
  if (!beside.empty()) {
    return fmt::format("'architectures' is {} beside 'model_type' {}, accepted: '{}'", formats::shown(list),
                       formats::shown(type), fmt::join(beside, "', '"));
  }
  std::vector<std::string> names;
  for (const Family& family : families())
    if (std::find(names.begin(), names.end(), family.architecture) == names.end())
      names.push_back(family.architecture);
  const Json shown = list.is_array() && list.size() == 1 ? list[0] : type;
  const std::string name = shown.is_string() ? shown.get<std::string>() : formats::shown(shown);
  return fmt::format("the architecture is '{}', accepted: '{}'{}", escaped(name, 60), fmt::join(names, "', '"),
                     did_you_mean(name, names));
}

const Family& family_of(const model::ModelConfig& config) {
  const auto at = std::find_if(families().begin(), families().end(),
                               [&](const Family& family) { return family.holds(config); });
  HEDDLE_CHECK(at != families().end(), "no family holds the model");
  return *at;
}

std::string name_in(const Family& family, const std::string& name) {
  return family.spelt == nullptr ? name : family.spelt(name);
}

ReleasedPlace place_in(const Family& family, const std::string& name, const std::vector<int64_t>& shape,
                       int64_t experts, const JoinedRows& joined) {
  if (family.stacked != nullptr) {
    if (std::optional<ReleasedPlace> place = family.stacked(name, shape, experts, joined)) return *place;
  }
  return {.name = name_in(family, name), .shape = shape, .row_step = shape.empty() ? 1 : shape.back()};
}

std::vector<ReleasedPlace> places_of(const std::string& name, const std::vector<int64_t>& shape, int64_t experts,
                                     const JoinedRows& joined, const Family* own) {
  std::vector<ReleasedPlace> places;
  const auto add = [&](const ReleasedPlace& other) {
    if (std::find(places.begin(), places.end(), other) == places.end()) places.push_back(other);
  };
  const auto add_of = [&](const Family& family) {
    ReleasedPlace other = place_in(family, name, shape, experts, joined);
    add(other);
    // The further name is of the tensor by itself, also where the family's own holds several.
    if (family.also_spelt != nullptr)
      add({.name = family.also_spelt(name), .shape = shape, .row_step = shape.empty() ? 1 : shape.back()});
    if (family.may_lack.empty() || !other.name.starts_with(family.may_lack)) return;
    other.name.erase(0, family.may_lack.size());
    add(other);
  };
  if (own != nullptr) add_of(*own);
  for (const Family& family : families())
    if (family.renames != nullptr && family.renames(name)) add_of(family);
  add({.name = name, .shape = shape, .row_step = shape.empty() ? 1 : shape.back()});
  // A family that renames may call a tensor as others call another one.
  for (const bool renaming : {false, true}) {
    for (const Family& family : families())
      if ((family.renames != nullptr) == renaming) add_of(family);
  }
  return places;
}

bool is_passed_over(std::string_view name, const HasTensor& has) {
  return name.ends_with("rotary_emb.inv_freq") ||
         std::any_of(families().begin(), families().end(),
                     [&](const Family& f) { return f.passed_over != nullptr && f.passed_over(name, has); });
}

void join_names(Json& root, const std::string& place,
                std::initializer_list<std::pair<const char*, const char*>> names) {
  for (const auto& [other, ours] : names) {
    const Json value = root.value(other, Json());
    if (value.is_null()) continue;
    Json& known = root[ours];
    if (known.is_null()) known = value;
    if (known != value) {
      config_error("{}: '{}' is {} and '{}' {}: they are one key", place, other, formats::shown(value), ours,
                   formats::shown(known));
    }
  }
}

std::string_view original_of(std::string_view name, bool has_head) {
  constexpr std::string_view kHead = "lm_head.weight";
  if (name == kHead && !has_head) return kEmbedding;
  for (const Family& family : families()) {
    if (family.repeats == nullptr) continue;
    const std::string_view original = family.repeats(name, has_head ? kHead : kEmbedding);
    if (!original.empty()) return original;
  }
  return "";
}

std::vector<std::string> unsaid_keys(const Family& family) {
  std::vector<std::string> names;
  for (const model::Key& key : model::keys()) {
    const bool said = std::any_of(family.keys.begin(), family.keys.end(),
                                  [&](const PublishedKey& each) { return each.ours == key.name; }) ||
                      std::find(family.said.begin(), family.said.end(), key.name) != family.said.end();
    const bool fixed = key.name == "attention" || model::is_of_scaling(key);
    const bool may_have = key.of == model::Key::Of::recurrent || key.of == model::Key::Of::stateful
                              ? !family.base.is_latent() || family.base.recurs()
                              : key.of == model::Key::Of::streams || key.of == model::Key::Of::ngrams ||
                                    model::has_key(family.base, key);
    if (!said && !fixed && may_have) names.push_back(key.name);
  }
  return names;
}

namespace {

// Transformers reads no hidden_act where the family's activation has another name.
bool names_activation(const Family& family) {
  return std::any_of(family.keys.begin(), family.keys.end(), [](const PublishedKey& key) {
    return key.name == "hidden_activation" || key.name == "mlp_hidden_act" || key.name == "activation_function";
  });
}

}  // namespace

void check_keys(const Family& family, const Json& root, const std::string& place,
                std::vector<std::string>* warnings) {
  std::vector<std::string> known{"heddle", "model_type", "rope_parameters", "original_max_position_embeddings"};
  const bool other_activation = names_activation(family);
  for (const std::vector<Only>* list : {&family.only, &of_every_family()}) {
    for (const Only& each : *list) {
      if (other_activation && list != &family.only && each.name == "hidden_act") continue;
      known.push_back(each.name);
      const auto at = root.find(each.name);
      // A family reads itself what it has a key for.
      const bool reads = std::any_of(family.keys.begin(), family.keys.end(), [&](const PublishedKey& key) {
        return key.name == (each.read_by.empty() ? each.name : each.read_by) && (key.read || !key.ours.empty());
      });
      if (reads && list != &family.only) continue;
      if (at == root.end() || at->is_null() || each.accepted(*at, root)) continue;
      config_error("{}: '{}' is {}: {}", place, each.name, formats::shown(*at), each.reason);
    }
  }
  if (warnings == nullptr) return;
  for (const PublishedKey& each : family.keys) known.push_back(each.name);
  known.insert(known.end(), family.read_besides.begin(), family.read_besides.end());
  for (const auto& [name, value] : root.items()) {
    if (value.is_null() || is_among(name, kHarmless)) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    warnings->push_back(fmt::format("{}: the key '{}' is not known and ignored{}", place, escaped(name, 60),
                                    did_you_mean(name, known)));
  }
}

}  // namespace heddle::config

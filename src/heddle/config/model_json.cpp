#include "heddle/config/model_json.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/config/families/family.h"
#include "heddle/formats/hub_name.h"
#include "heddle/formats/json_text.h"
#include "heddle/formats/python_json.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

constexpr int64_t kMostModelBytes = 1 << 20;
constexpr int kMostNesting = 16;

Json json_of(const model::KeyValue& value) {
  return std::visit([](const auto& v) { return Json(v); }, value);
}

model::KeyValue value_of(const Json& json, model::Key::Kind kind) {
  Json object;
  object["standard"] = json;
  return JsonKeys(object, "a family's table", "").required("standard", kind);
}

void read_key(const PublishedKey& key, const JsonKeys& keys, ModelConfig& c) {
  if (key.read) return key.read(keys, c);
  if (key.ours.empty()) return;
  const model::Key& ours = *model::find_key(key.ours);
  const char* name = key.name.c_str();
  const bool is_null = keys.contains(name) && keys.find(name) == nullptr;
  const Json& otherwise = is_null && !key.where_null.is_null() ? key.where_null : key.standard;
  if (keys.find(name) != nullptr || otherwise.is_null()) {
    ours.set(c, keys.required(name, ours.kind));
  } else {
    ours.set(c, value_of(otherwise, ours.kind));
  }
}

void read_heddle(const Family& family, const JsonKeys& keys, ModelConfig& c) {
  const Json* object = keys.find("heddle");
  if (object == nullptr) return;
  const JsonKeys ours(*object, keys.place(), "heddle.");
  const std::vector<std::string> names = unsaid_keys(family);
  for (const std::string& name : names) {
    const model::Key& key = *model::find_key(name);
    if (ours.find(name.c_str()) == nullptr) continue;
    const model::KeyValue value = ours.required(name.c_str(), key.kind);
    if (const auto* word = std::get_if<std::string>(&value);
        word != nullptr && !key.words.empty() &&
        std::find(key.words.begin(), key.words.end(), *word) == key.words.end()) {
      config_error("{}: 'heddle.{}' is '{}', accepted: {}", keys.place(), name, escaped(*word, 60),
                   fmt::join(key.words, ", "));
    }
    key.set(c, value);
  }
  ours.refuse_others(names);
}

// `root` in the family's words.
ModelConfig read(const Family& family, const Json& root, const std::string& place) {
  const JsonKeys keys(root, place, "");
  ModelConfig c = family.base;
  for (const PublishedKey& key : family.keys) read_key(key, keys, c);
  if (family.derive != nullptr) family.derive(c);
  return c;
}

ModelConfig read_checked(const Family& family, const Json& root, const std::string& place,
                         std::vector<std::string>* warnings) {
  check_keys(family, root, place, warnings);
  ModelConfig c = read(family, root, place);
  read_heddle(family, JsonKeys(root, place, ""), c);
  try {
    model::validate(c);
  } catch (const ConfigError& error) {
    config_error("{}: {}", place, error.what());
  }
  return c;
}

// Words of older files for kinds of layers, as Transformers renames them in every family.
void rename_layers(Json& root) {
  constexpr std::pair<const char*, const char*> kNames[] = {{"mamba", "linear_attention"},
                                                            {"attention", "full_attention"},
                                                            {"deepseek_sparse_attention", "indexed_attention"},
                                                            {"qwen_sparse_attention", "indexed_attention"}};
  const auto types = root.find("layer_types");
  if (types == root.end() || !types->is_array()) return;
  for (Json& type : *types) {
    for (const auto& [old, name] : kNames)
      if (type == old) type = name;
  }
}

void put_in_words(const Family& family, Json& root, const std::string& place) {
  rename_layers(root);
  if (const auto text = root.find("text_config"); text != root.end() && text->is_object()) rename_layers(*text);
  if (family.rewrite != nullptr) family.rewrite(root, place);
}

nlohmann::ordered_json published(const Family& family, const ModelConfig& c) {
  nlohmann::ordered_json json;
  json["architectures"] = {family.architecture};
  json["model_type"] = family.model_type;
  for (const PublishedKey& key : family.keys) {
    nlohmann::ordered_json value =
        key.write ? key.write(c) : nlohmann::ordered_json(json_of(model::find_key(key.ours)->get(c)));
    if (!value.is_discarded()) json[key.name] = std::move(value);
  }
  return json;
}

// Keys of a model that its family does not say, and that are not what it takes for granted.
std::vector<const model::Key*> beyond(const Family& family, const nlohmann::ordered_json& json,
                                      const ModelConfig& c) {
  Json words(json);
  put_in_words(family, words, "the model");
  const ModelConfig usual = read(family, words, "the model");
  std::vector<const model::Key*> found;
  for (const std::string& name : unsaid_keys(family)) {
    const model::Key& key = *model::find_key(name);
    if (key.get(c) != key.get(usual)) found.push_back(&key);
  }
  return found;
}

}  // namespace

ModelConfig model_config_from_json(const Json& root, const std::string& place, std::vector<std::string>* warnings) {
  const JsonKeys keys(root, place, "");
  const Family* family = find_family(root);
  const Json* type = keys.find("model_type");
  if (family == nullptr) {
    if (type != nullptr) config_error("{}: {}", place, why_no_family(root));
    family = &family_of(ModelConfig());
  }
  Json words = root;
  put_in_words(*family, words, place);
  return read_checked(*family, words, place, warnings);
}

Json read_config_json(const std::string& path) {
  const std::string text = read_file(path, kMostModelBytes);
  Json json;
  if (text.find("Infinity") == std::string::npos) {
    json = formats::parse_json(text, path, kMostNesting);
  } else {  // a bound that is none, as Python writes it
    try {
      json = formats::parse_python_json(text, {.most_depth = kMostNesting});
    } catch (const ConfigError& error) {
      config_error("{}: not JSON: {}", path, error.what());
    }
  }
  if (!json.is_object()) config_error("{}: not a JSON object", path);
  return json;
}

const Family* family_beside(const std::string& weights) {
  std::error_code ignored;
  const std::filesystem::path given(weights);
  const auto file = (std::filesystem::is_directory(given, ignored) ? given : given.parent_path()) / "config.json";
  if (!std::filesystem::exists(file, ignored)) return nullptr;
  try {
    return find_family(read_config_json(file));
  } catch (const ConfigError&) {
    return nullptr;  // whoever reads the model says what is wrong
  }
}

ModelConfig read_model_config(const std::string& path) {
  return model_config_from_json(read_config_json(path), path);
}

ModelConfig read_huggingface_config(const std::string& given, std::vector<std::string>* warnings) {
  std::error_code ignored;
  if (const std::string hint = formats::hub_hint(given); !hint.empty() && !std::filesystem::exists(given, ignored))
    config_error("{}: no such file or folder{}", given, hint);
  const std::string path = std::filesystem::is_directory(given, ignored) ? given + "/config.json" : given;
  Json json = read_config_json(path);
  const Json own = json.value("heddle", Json());
  if (!own.is_null() && !own.is_object())
    config_error("{}: 'heddle' is {}, an object is expected", path, formats::shown(own));
  const Family* family = find_family(json);
  if (family == nullptr) config_error("{}: {}", path, why_no_family(json));
  put_in_words(*family, json, path);
  if (family->adopt != nullptr) family->adopt(json, path, warnings);
  ModelConfig config = read_checked(*family, json, path, warnings);
  if (family->complete != nullptr) family->complete(config, path, warnings);
  return config;
}

bool is_released_folder(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder(path);
  return !path.empty() && fs::is_directory(folder, ignored) && fs::exists(folder / "config.json", ignored) &&
         !fs::exists(folder / "config.toml", ignored) && !fs::exists(folder / "state.json", ignored);
}

nlohmann::ordered_json model_config_to_json(const ModelConfig& c) {
  const Family& family = family_of(c);
  nlohmann::ordered_json json = published(family, c);
  std::vector<const model::Key*> ours = beyond(family, json, c);
  for (const std::string& name : unsaid_keys(family)) {
    const model::Key& key = *model::find_key(name);
    const bool open = key.given != nullptr && !key.given(c);
    const bool idle = name.starts_with("index_") && !c.selects();
    const bool always = (key.trains && !idle) || name == "topk_bias";
    const bool differs = std::find(ours.begin(), ours.end(), &key) != ours.end();
    if (!open && (always || differs)) json["heddle"][name] = json_of(key.get(c));
  }
  return json;
}

std::string why_unpublished(const ModelConfig& c) {
  const Family& family = family_of(c);
  for (const model::Key* key : beyond(family, published(family, c), c)) {
    if (key->of == model::Key::Of::experts && !c.has_experts()) continue;
    // A choice without a bias is one whose bias is zero; DeepSeek's released files hold that.
    if (key->trains || (key->name == "topk_bias" && family.further != nullptr)) continue;
    return fmt::format("model.{} is {}, which {} does not have", key->name, model::shown(key->get(c)),
                       family.architecture);
  }
  return "";
}

std::vector<std::string> differences(const ModelConfig& found, const ModelConfig& expected) {
  std::vector<std::string> all;
  for (const model::Key& key : model::keys()) {
    if (key.trains || (!model::has_key(found, key) && !model::has_key(expected, key))) continue;
    const bool experts = key.of == model::Key::Of::experts && !found.has_experts() && !expected.has_experts();
    if (experts || key.get(found) == key.get(expected)) continue;
    all.push_back(fmt::format("{} is {}, {} is expected", key.name, model::shown(key.get(found)),
                              model::shown(key.get(expected))));
  }
  if (found.rope_scaling.has_value() != expected.rope_scaling.has_value()) {
    all.push_back(fmt::format("rope_scaling is {}given, it is expected {}", found.rope_scaling ? "" : "not ",
                              expected.rope_scaling ? "given" : "not to be"));
  }
  return all;
}

std::string difference(const ModelConfig& found, const ModelConfig& expected) {
  const std::vector<std::string> all = differences(found, expected);
  return all.empty() ? "" : all.front();
}

}  // namespace heddle::config

#include "heddle/config/families/rope_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

std::vector<std::string> known_keys(model::RopeType type) {
  std::vector<std::string> names{"type",
                                 "rope_type",
                                 "rope_theta",
                                 "factor",
                                 "original_max_position_embeddings",
                                 "finetuned",
                                 "partial_rotary_factor",
                                 "mrope_section",  // places in pictures: of text they are all one
                                 "mrope_interleaved"};
  const auto also = [&](std::initializer_list<const char*> more) {
    names.insert(names.end(), more.begin(), more.end());
  };
  if (type == model::RopeType::yarn)
    also({"beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor", "truncate"});
  if (type == model::RopeType::llama3) also({"low_freq_factor", "high_freq_factor"});
  if (type == model::RopeType::longrope)
    also({"short_factor", "long_factor", "short_mscale", "long_mscale", "attention_factor"});
  return names;
}

// Keys of a section that stretches nothing: those of any type.
void refuse_unknown_of_default(const JsonKeys& rope) { rope.refuse_others(known_keys(model::RopeType::linear)); }

void read_attention_factor(const JsonKeys& rope, const std::string& name, model::RopeScaling& scaling) {
  if (rope.find("attention_factor") == nullptr) return;
  scaling.attention_factor = rope.number("attention_factor");
  if (!(scaling.attention_factor > 0)) {
    config_error("{}: '{}attention_factor' is {}, more than 0 is expected", rope.place(), name,
                 scaling.attention_factor);
  }
}

void read_yarn(const JsonKeys& rope, const std::string& name, model::RopeScaling& yarn) {
  yarn.beta_fast = rope.positive("beta_fast", yarn.beta_fast);
  yarn.beta_slow = rope.positive("beta_slow", yarn.beta_slow);
  yarn.mscale = rope.positive("mscale", 0);
  yarn.mscale_all_dim = rope.positive("mscale_all_dim", 0);
  read_attention_factor(rope, name, yarn);
  yarn.truncate = rope.boolean("truncate", yarn.truncate);
}

std::string factors_text(const JsonKeys& rope, const std::string& name, const char* key) {
  const nlohmann::json* list = rope.find(key);
  const bool numbers =
      list != nullptr && list->is_array() && !list->empty() &&
      std::all_of(list->begin(), list->end(), [](const nlohmann::json& one) { return one.is_number(); });
  if (!numbers) {
    config_error("{}: '{}{}' is {}, a list of numbers is expected", rope.place(), name, key,
                 list == nullptr ? "missing" : formats::shown(*list));
  }
  return model::text_of_factors(list->get<std::vector<double>>());
}

// Without a factor it is the ratio of the lengths, with which the attention factor grows.
void read_longrope(int64_t positions, const JsonKeys& rope, const std::string& name, model::RopeScaling& scaling) {
  scaling.short_factor = factors_text(rope, name, "short_factor");
  scaling.long_factor = factors_text(rope, name, "long_factor");
  scaling.short_mscale = rope.positive("short_mscale", 0);
  scaling.long_mscale = rope.positive("long_mscale", 0);
  if (scaling.short_mscale == 0) read_attention_factor(rope, name, scaling);
  if (rope.find("factor") == nullptr) {
    scaling.factor = std::max(1.0, static_cast<double>(positions) / scaling.original_max_position_embeddings);
  }
}

// Rotary keys by layer take no length from outside: Transformers reads the one inside, or max_position_embeddings.
void keep_length_inside(nlohmann::json& root, const std::string& place) {
  const nlohmann::json scaling = root.value("rope_scaling", nlohmann::json());
  const char* length = "original_max_position_embeddings";
  if (!scaling.is_object() || scaling.empty() || root.value(length, nlohmann::json()).is_null()) return;
  const JsonKeys rope(scaling, place, "rope_scaling.");
  if (rope.find(length) == nullptr && rope_kind(rope) != "default" && rope_kind(rope) != "linear")
    config_error("{}: '{}' stands outside the rotary keys of full attention: not built", place, length);
  root.erase(length);
}

}  // namespace

RopeSection rope_section(const JsonKeys& keys) {
  const nlohmann::json* scaling = keys.find("rope_scaling");
  if (scaling != nullptr && !scaling->empty()) return {"rope_scaling", scaling};
  return {"rope_parameters", keys.find("rope_parameters")};
}

std::string rope_kind(const JsonKeys& section) {
  return section.word("rope_type", section.word("type", "default"));
}

// Old files have rope_theta and rope_scaling; those of Transformers 5 have both in rope_parameters. A rope_theta
// inside goes before the one outside.
void read_rope(const JsonKeys& keys, model::ModelConfig& c) {
  const std::string& place = keys.place();
  c.rope_theta = keys.number("rope_theta", c.rope_theta);
  const RopeSection section = rope_section(keys);
  if (section.keys == nullptr) return;
  const std::string name = section.name + std::string(".");
  const JsonKeys rope(*section.keys, place, name);
  c.rope_theta = rope.number("rope_theta", c.rope_theta);
  const std::string type = rope_kind(rope);
  if (type == "default") return refuse_unknown_of_default(rope);
  const std::optional<model::RopeType> known = find_word<model::RopeType>(type);
  if (!known) {
    config_error("{}: '{}type' is '{}', accepted are 'default', '{}'", place, name, escaped(type, 60),
                 fmt::join(all_words<model::RopeType>(), "', '"));
  }
  rope.refuse_others(known_keys(*known));
  model::RopeScaling scaling;
  scaling.type = *known;
  scaling.factor = *known == model::RopeType::longrope ? rope.number("factor", 1) : rope.number("factor");
  if (scaling.type != model::RopeType::linear) {
    // A key of that name outside goes before the one inside.
    scaling.original_max_position_embeddings = keys.number(
        "original_max_position_embeddings",
        rope.number("original_max_position_embeddings", static_cast<double>(c.max_position_embeddings)));
  }
  if (scaling.type == model::RopeType::yarn) read_yarn(rope, name, scaling);
  if (scaling.type == model::RopeType::llama3) {
    scaling.low_freq_factor = rope.number("low_freq_factor");
    scaling.high_freq_factor = rope.number("high_freq_factor");
  }
  if (scaling.type == model::RopeType::longrope) read_longrope(c.max_position_embeddings, rope, name, scaling);
  if (!(scaling.factor >= 1) || !(scaling.original_max_position_embeddings >= 1)) {
    config_error("{}: '{}factor' is {} and its original length {}, both must be at least 1", place, name,
                 scaling.factor, scaling.original_max_position_embeddings);
  }
  c.rope_scaling = scaling;
}

void read_partial_rotary(const JsonKeys& keys, double standard, model::ModelConfig& c) {
  const RopeSection section = rope_section(keys);
  c.partial_rotary_factor = keys.number("partial_rotary_factor", standard);
  if (section.keys == nullptr) return;
  const JsonKeys rope(*section.keys, keys.place(), section.name + std::string("."));
  c.partial_rotary_factor = rope.number("partial_rotary_factor", c.partial_rotary_factor);
}

void flatten_rotation_by_layer(nlohmann::json& root, const std::string& place, const char* window_theta) {
  using nlohmann::json;
  keep_length_inside(root, place);
  const json by_layer = root.value("rope_parameters", json());
  if (by_layer.is_null() || by_layer.empty()) return;
  const JsonKeys layers(by_layer, place, "rope_parameters.");
  layers.refuse_others({"full_attention", "sliding_attention"});
  if (const json scaling = root.value("rope_scaling", json()); !scaling.is_null() && !scaling.empty())
    config_error("{}: 'rope_scaling' and 'rope_parameters' are both given, accepted: one of them", place);
  const json full = by_layer.value("full_attention", json()), window = by_layer.value("sliding_attention", json());
  const auto kind_of = [&](const char* layer) {
    if (layers.find(layer) == nullptr) return std::string("default");
    const JsonKeys rope(*layers.find(layer), place, fmt::format("rope_parameters.{}.", layer));
    if (rope_kind(rope) == "default") refuse_unknown_of_default(rope);
    return rope_kind(rope);
  };
  const std::string kind = kind_of("full_attention");
  root.erase("rope_parameters");
  if (const std::string other = kind_of("sliding_attention"); other != "default") {
    config_error("{}: 'rope_parameters.sliding_attention' is of the type '{}', only 'default' is built", place,
                 escaped(other, 60));
  }
  if (window.is_object()) {
    if (full.is_object() &&
        window.value("partial_rotary_factor", json()) != full.value("partial_rotary_factor", json()))
      config_error("{}: 'rope_parameters' turn other parts of heads in layers with a window: not built", place);
    if (!window.value("rope_theta", json()).is_null()) root[window_theta] = window["rope_theta"];
  }
  if (!full.is_object()) return;
  for (const char* name : {"rope_theta", "partial_rotary_factor"}) {
    if (!full.value(name, json()).is_null()) root[name] = full[name];
  }
  if (kind != "default") root["rope_scaling"] = full;
  keep_length_inside(root, place);
}

nlohmann::ordered_json rope_scaling_json(const model::ModelConfig& c) {
  if (!c.rope_scaling) return nullptr;
  const model::RopeScaling& y = *c.rope_scaling;
  nlohmann::ordered_json scaling{{"type", word_of(y.type)}, {"rope_type", word_of(y.type)}, {"factor", y.factor}};
  if (y.type == model::RopeType::linear) return scaling;
  scaling["original_max_position_embeddings"] = y.original_max_position_embeddings;
  if (y.type == model::RopeType::llama3) {
    scaling["low_freq_factor"] = y.low_freq_factor;
    scaling["high_freq_factor"] = y.high_freq_factor;
  } else if (y.type == model::RopeType::longrope) {
    scaling["short_factor"] = model::factors_of(y.short_factor).value();
    scaling["long_factor"] = model::factors_of(y.long_factor).value();
    if (y.short_mscale != 0) scaling["short_mscale"] = y.short_mscale;
    if (y.long_mscale != 0) scaling["long_mscale"] = y.long_mscale;
  } else {
    scaling["beta_fast"] = y.beta_fast;
    scaling["beta_slow"] = y.beta_slow;
    if (y.mscale != 0) scaling["mscale"] = y.mscale;
    if (y.mscale_all_dim != 0) scaling["mscale_all_dim"] = y.mscale_all_dim;
    if (!y.truncate) scaling["truncate"] = false;
  }
  if (y.attention_factor != 0) scaling["attention_factor"] = y.attention_factor;
  const auto whole = static_cast<int64_t>(y.original_max_position_embeddings);
  if (y.original_max_position_embeddings == static_cast<double>(whole)) {
    scaling["original_max_position_embeddings"] = whole;
  }
  return scaling;
}

void name_longrope(nlohmann::json& root, const std::string& place) {
  const RopeSection section = rope_section(JsonKeys(root, place, ""));
  if (section.keys == nullptr) return;
  const std::string kind = rope_kind(JsonKeys(*section.keys, place, section.name + std::string(".")));
  if (kind == "default" || kind == "longrope") return;
  if (kind != "su" && kind != "yarn")
    config_error("{}: '{}' is of the type '{}', accepted are 'default' and 'longrope'", place, section.name,
                 escaped(kind, 60));
  root[section.name]["rope_type"] = "longrope";
}

}  // namespace heddle::config

#include "heddle/config/families/rope_json.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"

namespace heddle::config {

namespace {

std::vector<std::string> known_keys(model::RopeType type) {
  std::vector<std::string> names{"type",
                                 "rope_type",
                                 "rope_theta",
                                 "factor",
                                 "original_max_position_embeddings",
                                 "finetuned",
                                 "partial_rotary_factor"};
  const auto also = [&](std::initializer_list<const char*> more) {
    names.insert(names.end(), more.begin(), more.end());
  };
  if (type == model::RopeType::yarn)
    also({"beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor", "truncate"});
  if (type == model::RopeType::llama3) also({"low_freq_factor", "high_freq_factor"});
  return names;
}

void read_yarn(const JsonKeys& rope, const std::string& name, model::RopeScaling& yarn) {
  yarn.beta_fast = rope.positive("beta_fast", yarn.beta_fast);
  yarn.beta_slow = rope.positive("beta_slow", yarn.beta_slow);
  yarn.mscale = rope.positive("mscale", 0);
  yarn.mscale_all_dim = rope.positive("mscale_all_dim", 0);
  if (rope.find("attention_factor") != nullptr) {
    yarn.attention_factor = rope.number("attention_factor");
    if (!(yarn.attention_factor > 0)) {
      config_error("{}: '{}attention_factor' is {}, more than 0 is expected", rope.place(), name,
                   yarn.attention_factor);
    }
  }
  yarn.truncate = rope.boolean("truncate", yarn.truncate);
}

}  // namespace

// Old files have rope_theta and rope_scaling; those of Transformers 5 have both in rope_parameters. Where both
// stand, Transformers takes rope_scaling, and a rope_theta in it before the one outside.
void read_rope(const JsonKeys& keys, model::ModelConfig& c) {
  const std::string& place = keys.place();
  c.rope_theta = keys.number("rope_theta", c.rope_theta);
  const char* section = "rope_scaling";
  const nlohmann::json* given = keys.find(section);
  if (given == nullptr || given->empty()) given = keys.find(section = "rope_parameters");
  if (given == nullptr) return;
  const std::string name = section + std::string(".");
  const JsonKeys rope(*given, place, name);
  c.rope_theta = rope.number("rope_theta", c.rope_theta);
  const std::string type = rope.word("rope_type", rope.word("type", "default"));
  if (type == "default") return;
  const std::optional<model::RopeType> known = find_word<model::RopeType>(type);
  if (!known) {
    config_error("{}: '{}type' is '{}', accepted are 'default', '{}'", place, name, escaped(type, 60),
                 fmt::join(all_words<model::RopeType>(), "', '"));
  }
  rope.refuse_others(known_keys(*known));
  model::RopeScaling scaling;
  scaling.type = *known;
  scaling.factor = rope.number("factor");
  if (scaling.type != model::RopeType::linear) {
    // A key of that name outside goes before the one inside.
    scaling.original_max_position_embeddings =
        keys.number("original_max_position_embeddings",
                    rope.number("original_max_position_embeddings", keys.number("max_position_embeddings")));
  }
  if (scaling.type == model::RopeType::yarn) read_yarn(rope, name, scaling);
  if (scaling.type == model::RopeType::llama3) {
    scaling.low_freq_factor = rope.number("low_freq_factor");
    scaling.high_freq_factor = rope.number("high_freq_factor");
  }
  if (!(scaling.factor >= 1) || !(scaling.original_max_position_embeddings >= 1)) {
    config_error("{}: '{}factor' is {} and its original length {}, both must be at least 1", place, name,
                 scaling.factor, scaling.original_max_position_embeddings);
  }
  c.rope_scaling = scaling;
}

void read_partial_rotary(const JsonKeys& keys, double standard, model::ModelConfig& c) {
  const char* section = "rope_parameters";
  const nlohmann::json* scaling = keys.find(section);
  if (scaling == nullptr) scaling = keys.find(section = "rope_scaling");
  c.partial_rotary_factor = keys.number("partial_rotary_factor", standard);
  if (scaling == nullptr) return;
  const JsonKeys rope(*scaling, keys.place(), section + std::string("."));
  c.partial_rotary_factor = rope.number("partial_rotary_factor", c.partial_rotary_factor);
}

nlohmann::ordered_json rope_scaling_json(const model::ModelConfig& c) {
  if (!c.rope_scaling) return nullptr;
  const model::RopeScaling& y = *c.rope_scaling;
  nlohmann::ordered_json scaling{{"type", word_of(y.type)}, {"factor", y.factor}};
  if (y.type != model::RopeType::yarn) scaling["rope_type"] = word_of(y.type);
  if (y.type == model::RopeType::linear) return scaling;
  scaling["original_max_position_embeddings"] = y.original_max_position_embeddings;
  if (y.type == model::RopeType::llama3) {
    scaling["low_freq_factor"] = y.low_freq_factor;
    scaling["high_freq_factor"] = y.high_freq_factor;
  } else {
    scaling["beta_fast"] = y.beta_fast;
    scaling["beta_slow"] = y.beta_slow;
    if (y.mscale != 0) scaling["mscale"] = y.mscale;
    if (y.mscale_all_dim != 0) scaling["mscale_all_dim"] = y.mscale_all_dim;
    if (y.attention_factor != 0) scaling["attention_factor"] = y.attention_factor;
    if (!y.truncate) scaling["truncate"] = false;
  }
  const auto whole = static_cast<int64_t>(y.original_max_position_embeddings);
  if (y.original_max_position_embeddings == static_cast<double>(whole)) {
    scaling["original_max_position_embeddings"] = whole;
  }
  return scaling;
}

}  // namespace heddle::config

#include "heddle/config/families/rope_json.h"

#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"

namespace heddle::config {

// Old files have rope_theta and rope_scaling; those of Transformers 5 have both in rope_parameters. Where both
// stand, Transformers takes rope_scaling, and a rope_theta in it before the one outside.
void read_rope(const JsonKeys& keys, model::ModelConfig& c) {
  const std::string& place = keys.place();
  c.rope_theta = keys.number("rope_theta", c.rope_theta);
  const char* section = "rope_scaling";
  const nlohmann::json* scaling = keys.find(section);
  if (scaling == nullptr || scaling->empty()) scaling = keys.find(section = "rope_parameters");
  if (scaling == nullptr) return;
  const std::string name = section + std::string(".");
  const JsonKeys rope(*scaling, place, name);
  c.rope_theta = rope.number("rope_theta", c.rope_theta);
  const std::string type = rope.word("rope_type", rope.word("type", "default"));
  if (rope.number("partial_rotary_factor", 1) != 1) {
    config_error("{}: '{}partial_rotary_factor': heads rotated in part by it are not built", place, name);
  }
  if (type == "default") return;
  if (type != "yarn") {
    config_error("{}: '{}type' is '{}', accepted are 'default' and 'yarn'", place, name, escaped(type, 60));
  }
  rope.refuse_others({"type", "rope_type", "rope_theta", "factor", "original_max_position_embeddings", "beta_fast",
                      "beta_slow", "mscale", "mscale_all_dim", "attention_factor", "truncate",
                      "partial_rotary_factor", "finetuned"});
  model::Yarn yarn;
  yarn.factor = rope.number("factor");
  // A key of that name outside goes before the one inside.
  yarn.original_max_position_embeddings =
      keys.number("original_max_position_embeddings",
                  rope.number("original_max_position_embeddings", keys.number("max_position_embeddings")));
  yarn.beta_fast = rope.positive("beta_fast", yarn.beta_fast);
  yarn.beta_slow = rope.positive("beta_slow", yarn.beta_slow);
  yarn.mscale = rope.positive("mscale", 0);
  yarn.mscale_all_dim = rope.positive("mscale_all_dim", 0);
  if (rope.find("attention_factor") != nullptr) {
    yarn.attention_factor = rope.number("attention_factor");
    if (!(yarn.attention_factor > 0)) {
      config_error("{}: '{}attention_factor' is {}, more than 0 is expected", place, name, yarn.attention_factor);
    }
  }
  yarn.truncate = rope.boolean("truncate", yarn.truncate);
  if (!(yarn.factor >= 1) || !(yarn.original_max_position_embeddings >= 1)) {
    config_error("{}: '{}factor' is {} and its original length {}, both must be at least 1", place, name,
                 yarn.factor, yarn.original_max_position_embeddings);
  }
  c.rope_scaling = yarn;
}

nlohmann::ordered_json rope_scaling_json(const model::ModelConfig& c) {
  if (!c.rope_scaling) return nullptr;
  const model::Yarn& y = *c.rope_scaling;
  nlohmann::ordered_json scaling{{"type", "yarn"},
                                 {"factor", y.factor},
                                 {"original_max_position_embeddings", y.original_max_position_embeddings},
                                 {"beta_fast", y.beta_fast},
                                 {"beta_slow", y.beta_slow}};
  if (y.mscale != 0) scaling["mscale"] = y.mscale;
  if (y.mscale_all_dim != 0) scaling["mscale_all_dim"] = y.mscale_all_dim;
  if (y.attention_factor != 0) scaling["attention_factor"] = y.attention_factor;
  if (!y.truncate) scaling["truncate"] = false;
  const auto whole = static_cast<int64_t>(y.original_max_position_embeddings);
  if (y.original_max_position_embeddings == static_cast<double>(whole)) {
    scaling["original_max_position_embeddings"] = whole;
  }
  return scaling;
}

}  // namespace heddle::config

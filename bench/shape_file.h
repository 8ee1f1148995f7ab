// The model of a shape file (bench/torch_peer/shapes): keys of model/keys.h under their names, what is null or
// absent as by default.
#pragma once

#include <nlohmann/json.hpp>

#include "heddle/model/keys.h"

namespace heddle::bench {

inline model::ModelConfig model_of(const nlohmann::json& shape) {
  model::ModelConfig config;
  for (const model::Key& key : model::keys()) {
    const auto at = shape.find(key.name);
    if (at == shape.end() || at->is_null()) continue;
    switch (key.kind) {
      case model::Key::Kind::boolean: key.set(config, at->get<bool>()); break;
      case model::Key::Kind::integer: key.set(config, at->get<int64_t>()); break;
      case model::Key::Kind::number: key.set(config, at->get<double>()); break;
      case model::Key::Kind::word: key.set(config, at->get<std::string>()); break;
    }
  }
  return config;
}

}  // namespace heddle::bench

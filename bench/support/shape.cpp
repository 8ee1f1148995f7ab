#include "bench/support/shape.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/model/keys.h"

namespace heddle::bench {

Shape read_shape(const std::string& path) {
  std::ifstream file(path);
  if (!file) config_error("cannot read the shape file '{}'", path);
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(file);
  } catch (const nlohmann::json::exception& error) {
    config_error("{}: {}", path, error.what());
  }
  Shape shape;
  model::ModelConfig& m = shape.model;
  for (const model::Key& key : model::keys()) {
    const auto at = json.find(key.name);
    if (at == json.end() || at->is_null()) continue;
    switch (key.kind) {
      case model::Key::Kind::boolean: key.set(m, at->get<bool>()); break;
      case model::Key::Kind::integer: key.set(m, at->get<int64_t>()); break;
      case model::Key::Kind::number: key.set(m, at->get<double>()); break;
      case model::Key::Kind::word: key.set(m, at->get<std::string>()); break;
    }
  }
  const auto read = [&](const char* key, auto& into) {
    if (json.contains(key) && !json.at(key).is_null()) json.at(key).get_to(into);
  };
  read("sequence", shape.sequence);
  read("microbatch", shape.sequences);
  read("microbatches", shape.microbatches);
  m.max_position_embeddings = std::max(m.max_position_embeddings, shape.sequence);
  return shape;
}

}  // namespace heddle::bench

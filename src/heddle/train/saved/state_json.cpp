#include "heddle/train/saved/state_json.h"

#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/config/model_json.h"
#include "heddle/train/controllers/controllers.h"

namespace heddle::train {

using nlohmann::json;

json json_of(const CheckpointState& s) {
  json all{{"step", s.step},
           {"trained_seconds", s.trained_s},
           {"consumed_sequences", s.consumed_sequences},
           {"seed", s.seed},
           {"model", json(config::model_config_to_json(s.model))},
           {"data", s.data},
           {"layout", s.layout}};
  if (!s.adapters.empty()) all["adapters"] = s.adapters;
  if (s.generation != 0) all["generation"] = s.generation;
  if (!s.weights_digest.empty()) all["weights_digest"] = s.weights_digest;
  if (!s.moments_digest.empty()) all["moments_digest"] = s.moments_digest;
  if (!s.config_hash.empty()) all["config"] = s.config_hash;
  for (const auto& [name, state] : s.controllers) {
    HEDDLE_CHECK(!all.contains(name), "a controller and a checkpoint's own state are both called '{}'", name);
    all[name] = json::parse(state);
  }
  return all;
}

CheckpointState state_from(const json& state, const std::string& path) {
  CheckpointState s;
  s.step = state.at("step").get<int64_t>();
  s.trained_s = state.value("trained_seconds", 0.0);
  s.consumed_sequences = state.at("consumed_sequences").get<int64_t>();
  s.seed = state.at("seed").get<uint64_t>();
  if (s.step < 0 || s.consumed_sequences < 0 || !(s.trained_s >= 0)) {
    config_error("{}: step {}, {} sequences consumed, {} s of training", path, s.step, s.consumed_sequences,
                 s.trained_s);
  }
  s.model = config::model_config_from_json(state.at("model"), path);
  s.data = state.at("data").get<std::map<std::string, std::string>>();
  if (state.contains("adapters")) s.adapters = state.at("adapters").get<decltype(s.adapters)>();
  for (const ControllerRow& row : controller_rows()) {
    const auto at = state.find(row.name);
    if (row.check == nullptr || at == state.end()) continue;
    row.check(*at, s, path);
    s.controllers.emplace(row.name, at->dump());
  }
  s.layout = state.at("layout").get<std::map<std::string, std::string>>();
  s.generation = state.value("generation", int64_t{0});
  const auto digest = [&](const char* key) {
    constexpr size_t kMostDigits = 64;
    std::string said = state.value(key, std::string());
    if (said.size() > kMostDigits) config_error("{}: '{}' has {} bytes and is no digest", path, key, said.size());
    return said;
  };
  s.weights_digest = digest("weights_digest");
  s.moments_digest = digest("moments_digest");
  s.config_hash = digest("config");
  return s;
}

}  // namespace heddle::train

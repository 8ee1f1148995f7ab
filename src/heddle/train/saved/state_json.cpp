#include "heddle/train/saved/state_json.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/config/model_json.h"

namespace heddle::train {

using nlohmann::json;

namespace {

json json_of(const OutlierHistory& h) {
  return {{"norms", h.norms},     {"losses", h.losses},     {"left_out", h.left_out},
          {"skipped", h.skipped}, {"in_a_row", h.in_a_row}, {"gone_back", h.gone_back}};
}

OutlierHistory outliers_of(const json& from) {
  OutlierHistory h;
  from.at("norms").get_to(h.norms);
  from.at("losses").get_to(h.losses);
  from.at("left_out").get_to(h.left_out);
  from.at("skipped").get_to(h.skipped);
  from.at("in_a_row").get_to(h.in_a_row);
  from.at("gone_back").get_to(h.gone_back);
  return h;
}

json json_of(const ExpertHistory& h) {
  json all = json::array();
  for (const auto& [number, layer] : h.layers) {
    all.push_back({{"layer", number}, {"rows", layer.rows_E}, {"uneven", layer.uneven}});
  }
  return all;
}

ExpertHistory expert_history_of(const json& from, int64_t experts, const std::string& path) {
  ExpertHistory h;
  for (const json& of : from) {
    ExpertHistory::Layer& layer = h.layers[of.at("layer").get<int>()];
    of.at("rows").get_to(layer.rows_E);
    of.at("uneven").get_to(layer.uneven);
    const bool sound = std::ssize(layer.rows_E) == experts && std::ranges::all_of(layer.rows_E, [](double rows) {
                         return rows >= 0 && std::isfinite(rows);
                       });
    if (!sound) {
      config_error("{}: the rows of {} experts are told, {} rows of 0 or more expected", path, layer.rows_E.size(),
                   experts);
    }
  }
  return h;
}

json json_of(const ExpertHomes& h) {
  json layers = json::array();
  for (const auto& [number, homes] : h.layers) layers.push_back({{"layer", number}, {"homes", homes}});
  return {{"holders", h.holders}, {"layers", layers}};
}

ExpertHomes homes_of(const json& from, int64_t experts, const std::string& path) {
  ExpertHomes h;
  from.at("holders").get_to(h.holders);
  for (const json& of : from.at("layers")) {
    std::vector<int32_t>& homes = h.layers[of.at("layer").get<int>()];
    of.at("homes").get_to(homes);
    std::vector<int32_t> sorted = homes;
    std::sort(sorted.begin(), sorted.end());
    bool sound = std::ssize(homes) == experts && h.holders > 0 && experts % h.holders == 0;
    for (size_t i = 0; i < sorted.size(); ++i) sound = sound && sorted[i] == static_cast<int32_t>(i);
    if (!sound) {
      config_error("{}: the homes of {} experts on {} ranks are told, each of {} has one of its own expected", path,
                   homes.size(), h.holders, experts);
    }
  }
  return h;
}

}  // namespace

json json_of(const CheckpointState& s) {
  json all{{"step", s.step},
           {"trained_seconds", s.trained_s},
           {"consumed_sequences", s.consumed_sequences},
           {"seed", s.seed},
           {"model", json(config::model_config_to_json(s.model))},
           {"data", s.data},
           {"layout", s.layout}};
  if (!s.adapters.empty()) all["adapters"] = s.adapters;
  if (s.outliers != OutlierHistory()) all["outliers"] = json_of(s.outliers);
  if (!s.expert_history.layers.empty()) all["expert_history"] = json_of(s.expert_history);
  if (!s.homes.layers.empty()) all["expert_homes"] = json_of(s.homes);
  if (s.generation != 0) all["generation"] = s.generation;
  if (!s.weights_digest.empty()) all["weights_digest"] = s.weights_digest;
  if (!s.config_hash.empty()) all["config"] = s.config_hash;
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
  if (state.contains("outliers")) s.outliers = outliers_of(state.at("outliers"));
  const OutlierHistory& outliers = s.outliers;
  if (outliers.left_out < 0 || outliers.left_out > s.step || outliers.in_a_row < 0 || outliers.skipped < 0) {
    config_error("{}: {} of {} steps left out, {} skipped, {} in a row", path, outliers.left_out, s.step,
                 outliers.skipped, outliers.in_a_row);
  }
  if (state.contains("expert_history")) {
    s.expert_history = expert_history_of(state.at("expert_history"), s.model.n_routed_experts, path);
  }
  if (state.contains("expert_homes")) s.homes = homes_of(state.at("expert_homes"), s.model.n_routed_experts, path);
  s.layout = state.at("layout").get<std::map<std::string, std::string>>();
  s.generation = state.value("generation", int64_t{0});
  s.weights_digest = state.value("weights_digest", std::string());
  s.config_hash = state.value("config", std::string());
  return s;
}

}  // namespace heddle::train

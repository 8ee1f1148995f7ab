#include "heddle/config/families/turned_windows.h"

#include "heddle/base/error.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

using model::ModelConfig;

namespace {

constexpr int64_t kMostTurned = 4096;

int64_t unturned_interval(const ModelConfig& c) { return c.sliding_window > 0 ? c.full_attention_interval : 0; }

}  // namespace

void turn_in_windows(ModelConfig& c) { c.no_rope_layer_interval = unturned_interval(c); }

bool turns_in_windows(const ModelConfig& c) {
  if (c.no_rope_layer_interval != unturned_interval(c)) return false;
  for (int64_t l = 0; c.sliding_window > 0 && l < c.num_hidden_layers; ++l)
    if (c.turns_in(l) != c.has_window(l)) return false;
  return true;
}

std::vector<PublishedKey> turned_windows(int64_t window, const char* interval_key, int64_t interval) {
  std::vector<PublishedKey> all = window_of_all_but_every_nth(window, interval_key, interval);
  for (PublishedKey& each : all) {
    if (each.name != "sliding_window") continue;
    each.read = [read = each.read](const JsonKeys& keys, ModelConfig& c) {
      read(keys, c);
      turn_in_windows(c);
      if (turns_in_windows(c)) return;
      config_error(
          "{}: 'layer_types' leave a window out in other layers than every n-th from the first on: not built",
          keys.place());
    };
  }
  return all;
}

PublishedKey unwritten_window_switch() {
  using Written = nlohmann::ordered_json;
  return read_elsewhere("use_sliding_window",
                        [](const ModelConfig&) { return Written(Written::value_t::discarded); });
}

void name_mlp_layers(Json& root) {
  const Json first = root.value("first_k_dense_replace", Json()), layers = root.value("num_hidden_layers", Json());
  if (!first.is_number_integer() || first < 0 || !layers.is_number_integer() || layers < 1 || layers > kMostTurned)
    return;
  root.erase("first_k_dense_replace");
  Json& words = root["mlp_layer_types"];
  if (!words.is_null()) return;
  words = Json::array();
  for (int64_t l = 0; l < layers.get<int64_t>(); ++l) words.push_back(first > l ? "dense" : "sparse");
}

void skip_prediction_layers(const Json& root, const std::string& place, std::initializer_list<const char*> keys,
                            std::vector<std::string>* warnings) {
  for (const char* name : keys) {
    const Json layers = root.value(name, Json());
    if (layers.is_null() || layers == 0 || warnings == nullptr) continue;
    warnings->push_back(
        fmt::format("{}: layers that predict further tokens are not built for this family: taken as 0", place));
    return;
  }
}

}  // namespace heddle::config

#include "heddle/config/families/turning_layers.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

std::vector<bool> turning_now(const ModelConfig& c) {
  std::vector<bool> turns;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) turns.push_back(c.turns_in(l));
  return turns;
}

void read_no_rope_layers(const JsonKeys& keys, int64_t interval, ModelConfig& c) {
  c.no_rope_layer_interval = keys.whole("no_rope_layer_interval", interval);
  const Json* list = keys.find("no_rope_layers");
  if (list == nullptr || (list->is_array() && list->empty())) return;
  const auto is_flag = [](const Json& one) { return one == 0 || one == 1 || one.is_boolean(); };
  if (!list->is_array() || std::ssize(*list) != c.num_hidden_layers ||
      !std::all_of(list->begin(), list->end(), is_flag)) {
    config_error("{}: 'no_rope_layers' is {}: each of {} layers has 1, or 0 where it turns nothing", keys.place(),
                 formats::shown(*list), c.num_hidden_layers);
  }
  std::vector<bool> turns;
  for (const Json& one : *list) turns.push_back(one == 1 || one == true);
  set_turning_layers(c, turns);
}

double base_of(const ModelConfig& c, int64_t layer) {
  if (!c.turns_in(layer)) return 0;
  return c.has_window_rotation() && c.has_window(layer) ? c.window_rope_theta : c.rope_theta;
}

// The one base of the layers that turn, of those with a window or of the others; 0 where none turns.
double common_base(const JsonKeys& keys, const Json& list, const ModelConfig& c, bool windows) {
  double base = 0;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    const auto theta = list[static_cast<size_t>(l)].get<double>();
    if (theta == 0 || c.has_window(l) != windows) continue;
    if (base != 0 && base != theta) {
      config_error(
          "{}: 'layer_rope_theta' is {}: layers {} a window have one base, or 0 where they turn nothing; more are "
          "not built",
          keys.place(), formats::shown(list), windows ? "with" : "without");
    }
    base = theta;
  }
  return base;
}

void read_layer_rope_theta(const JsonKeys& keys, ModelConfig& c) {
  const Json* list = keys.find("layer_rope_theta");
  if (list == nullptr) return;
  const auto is_base = [](const Json& one) { return one.is_number() && (one == 0 || one >= 1); };
  if (!list->is_array() || std::ssize(*list) != c.num_hidden_layers ||
      !std::all_of(list->begin(), list->end(), is_base)) {
    config_error("{}: 'layer_rope_theta' is {}: each of {} layers has a number of 1 or more, or 0", keys.place(),
                 formats::shown(*list), c.num_hidden_layers);
  }
  const double full = common_base(keys, *list, c, false), window = common_base(keys, *list, c, true);
  if (full == 0 && window == 0) {
    c.positions = model::Positions::none;
    c.rope_scaling.reset();
    return;
  }
  c.rope_theta = full > 0 ? full : window;
  if (full > 0 && window > 0 && full != window) {
    if (c.rope_scaling)
      config_error("{}: 'layer_rope_theta' has two bases, and stretched positions of two are not built",
                   keys.place());
    c.window_rope_theta = window;
  }
  std::vector<bool> turns;
  for (const Json& one : *list) turns.push_back(one != 0);
  set_turning_layers(c, turns);
}

}  // namespace

void set_turning_layers(ModelConfig& c, const std::vector<bool>& turns) {
  const auto means = [&] { return turning_now(c) == turns; };
  if (means()) return;
  c.rotation_pattern.clear();
  const auto first = std::find(turns.begin(), turns.end(), false);
  c.no_rope_layer_interval = first == turns.end() ? 0 : first - turns.begin() + 1;
  if (means()) return;
  c.no_rope_layer_interval = 0;
  for (const bool layer : turns) c.rotation_pattern += layer ? 'R' : '-';
}

Written turning_layers(const ModelConfig& c) {
  Written list = Written::array();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) list.push_back(c.turns_in(l) ? 1 : 0);
  return list;
}

PublishedKey no_rope_layers_key(int64_t interval) {
  return {.name = "no_rope_layers",
          .ours = "no_rope_layer_interval",
          .read = [=](const JsonKeys& keys, ModelConfig& c) { read_no_rope_layers(keys, interval, c); },
          .write = turning_layers};
}

PublishedKey layer_rope_theta_key() {
  return {.name = "layer_rope_theta",
          .ours = "window_rope_theta",
          .read = read_layer_rope_theta,
          .write = [](const ModelConfig& c) {
            Written list = Written::array();
            for (int64_t l = 0; l < c.num_hidden_layers; ++l) list.push_back(base_of(c, l));
            return list;
          }};
}

}  // namespace heddle::config

#include "heddle/config/families/expert_layers.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

// A number that counts layers, which is at least one.
int64_t step_of(const JsonKeys& keys, const char* name) {
  const int64_t step = keys.whole(name, 1);
  if (step < 1) config_error("{}: '{}' is {}, must be at least 1", keys.place(), name, step);
  return step;
}

std::vector<bool> every_nth(const ModelConfig& c, int64_t step) {
  std::vector<bool> layers;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) layers.push_back((l + 1) % step == 0);
  return layers;
}

// Sets `value` for each layer of a list that may be there.
void set_listed(const JsonKeys& keys, const char* name, const ModelConfig& c, bool value,
                std::vector<bool>& layers) {
  const Json* list = keys.find(name);
  if (list == nullptr) return;
  const auto is_layer = [&](const Json& one) {
    return one.is_number_integer() && one >= 0 && one < c.num_hidden_layers;
  };
  if (!list->is_array() || !std::all_of(list->begin(), list->end(), is_layer)) {
    config_error("{}: '{}' is {}: numbers of {} layers are expected", keys.place(), name, formats::shown(*list),
                 c.num_hidden_layers);
  }
  for (const Json& one : *list) layers[one.get<size_t>()] = value;
}

Written numbers_of(const ModelConfig& c, bool experts) {
  Written list = Written::array();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    if (c.has_experts_behind(l) == experts) list.push_back(l);
  return list;
}

void read_mlp_layer_types(const JsonKeys& keys, int64_t standard, ModelConfig& c) {
  const int64_t first = keys.whole("first_k_dense_replace", standard);
  c.first_k_dense_replace = standard;
  const Json* types = keys.find("mlp_layer_types");
  if (types == nullptr && first == standard) return;
  if (types == nullptr) {
    config_error("{}: 'first_k_dense_replace' is {}: without 'mlp_layer_types' it is {}", keys.place(), first,
                 standard);
  }
  const auto is_word = [](const Json& type) { return type == "sparse" || type == "dense"; };
  if (!types->is_array() || std::ssize(*types) != c.num_hidden_layers ||
      !std::all_of(types->begin(), types->end(), is_word)) {
    config_error("{}: 'mlp_layer_types' is {}: of {} layers some may be dense, the others are sparse", keys.place(),
                 formats::shown(*types), c.num_hidden_layers);
  }
  std::vector<bool> experts;
  for (const Json& type : *types) experts.push_back(type == "sparse");
  set_expert_layers(c, experts);
  if (keys.find("first_k_dense_replace") == nullptr) return;
  const int64_t dense = std::find(experts.begin(), experts.end(), true) - experts.begin();
  if (first != dense || !c.mlp_pattern.empty()) {
    config_error("{}: 'first_k_dense_replace' is {}, but 'mlp_layer_types' has {} dense layers", keys.place(),
                 first, std::count(experts.begin(), experts.end(), false));
  }
}

// Every so many-th layer between two.
std::vector<bool> in_interval(const ModelConfig& c, int64_t step, int64_t first, int64_t last) {
  std::vector<bool> layers = every_nth(c, step);
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    if (l < first || l > last) layers[static_cast<size_t>(l)] = false;
  return layers;
}

// Every `step`-th layer from `first` to `last` has experts.
struct Interval {
  int64_t first = 0, last = -1, step = 1;
};
Interval interval_of(const ModelConfig& c) {
  std::vector<bool> experts;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) experts.push_back(c.has_experts_behind(l));
  const int64_t first = std::find(experts.begin(), experts.end(), true) - experts.begin();
  int64_t last = c.num_hidden_layers - 1;
  while (last > first && !experts[static_cast<size_t>(last)]) --last;
  for (int64_t step = 1; step <= c.num_hidden_layers; ++step) {
    if (in_interval(c, step, first, c.num_hidden_layers - 1) == experts) return {first, -1, step};
    if (in_interval(c, step, first, last) == experts) return {first, last, step};
  }
  return {first, -1, 1};
}

}  // namespace

void set_expert_layers(ModelConfig& c, const std::vector<bool>& experts) {
  c.mlp_pattern.clear();
  const auto first = std::find(experts.begin(), experts.end(), true);
  c.first_k_dense_replace = first - experts.begin();
  if (std::all_of(first, experts.end(), [](bool layer) { return layer; })) return;
  c.first_k_dense_replace = 0;
  for (const bool layer : experts) c.mlp_pattern += layer ? 'E' : '-';
}

PublishedKey mlp_layer_types_key(int64_t standard) {
  return {.name = "mlp_layer_types",
          .ours = "first_k_dense_replace",
          .read = [=](const JsonKeys& keys, ModelConfig& c) { read_mlp_layer_types(keys, standard, c); },
          .write =
              [](const ModelConfig& c) {
                Written types = Written::array();
                for (int64_t l = 0; l < c.num_hidden_layers; ++l)
                  types.push_back(c.has_experts_behind(l) ? "sparse" : "dense");
                return types;
              }};
}

std::vector<PublishedKey> sparse_step_keys() {
  return {{.name = "mlp_only_layers",
           .ours = "first_k_dense_replace",
           .read =
               [](const JsonKeys& keys, ModelConfig& c) {
                 std::vector<bool> experts = every_nth(c, step_of(keys, "decoder_sparse_step"));
                 set_listed(keys, "mlp_only_layers", c, false, experts);
                 set_expert_layers(c, experts);
               },
           .write = [](const ModelConfig& c) { return numbers_of(c, false); }},
          read_elsewhere(
              "decoder_sparse_step", [](const ModelConfig&) { return Written(1); }, "mlp_pattern")};
}

std::vector<PublishedKey> moe_layer_interval_keys() {
  return {{.name = "moe_layer_start_index",
           .ours = "first_k_dense_replace",
           .read =
               [](const JsonKeys& keys, ModelConfig& c) {
                 const int64_t last = keys.whole("moe_layer_end_index", -1);
                 set_expert_layers(
                     c, in_interval(c, step_of(keys, "moe_layer_interval"), keys.whole("moe_layer_start_index", 1),
                                    last == -1 ? c.num_hidden_layers - 1 : last));
               },
           .write = [](const ModelConfig& c) { return Written(interval_of(c).first); }},
          read_elsewhere("moe_layer_end_index", [](const ModelConfig& c) { return Written(interval_of(c).last); }),
          read_elsewhere("moe_layer_interval", [](const ModelConfig& c) { return Written(interval_of(c).step); })};
}

std::vector<PublishedKey> moe_layers_keys() {
  return {{.name = "moe_layers",
           .ours = "mlp_pattern",
           .read =
               [](const JsonKeys& keys, ModelConfig& c) {
                 std::vector<bool> experts = every_nth(c, step_of(keys, "interleave_moe_layer_step"));
                 if (keys.find("moe_layers") != nullptr) experts.assign(experts.size(), false);
                 set_listed(keys, "moe_layers", c, true, experts);
                 set_expert_layers(c, experts);
               },
           .write = [](const ModelConfig& c) { return numbers_of(c, true); }},
          read_elsewhere("interleave_moe_layer_step", [](const ModelConfig&) { return Written(1); })};
}

}  // namespace heddle::config

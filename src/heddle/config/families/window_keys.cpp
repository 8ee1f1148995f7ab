#include "heddle/config/families/window_keys.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

constexpr int64_t kGptOssWindow = 128;  // default of an absent key
constexpr const char *kFullWindows = "full_attention", *kWindow = "sliding_attention";

Written window_or_null(const ModelConfig& c) {
  return c.sliding_window > 0 ? Written(c.sliding_window) : Written();
}

Written layer_types_window_keys(const ModelConfig& c) {
  Written types = Written::array();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) types.push_back(c.window_of(l) > 0 ? kWindow : kFullWindows);
  return types;
}

// The layers that have the window, in the words of a model's keys: after the first ones, or but for every n-th.
// What is said of them already stays where it means the same.
void read_layer_types_window_keys(const JsonKeys& keys, ModelConfig& c) {
  const Json* types = keys.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || std::ssize(*types) != c.num_hidden_layers) {
    config_error("{}: 'layer_types' is {}, a word for each of {} layers is expected", keys.place(),
                 formats::shown(*types), c.num_hidden_layers);
  }
  const auto means = [&](const ModelConfig& model) { return Json(layer_types_window_keys(model)) == *types; };
  if (means(c)) return;
  ModelConfig other = c;
  other.full_attention_interval = other.full_attention_offset = 0;
  for (other.max_window_layers = 0; other.max_window_layers < c.num_hidden_layers; ++other.max_window_layers) {
    if (means(other)) return void(c = other);
  }
  other.max_window_layers = 0;
  for (other.full_attention_interval = 1; other.full_attention_interval <= c.num_hidden_layers;
       ++other.full_attention_interval) {
    if (means(other)) return void(c = other);
  }
  // Every n-th of them, counted from a later one than the first.
  for (other.full_attention_interval = 2; other.full_attention_interval <= c.num_hidden_layers;
       ++other.full_attention_interval) {
    other.full_attention_offset = std::find(types->begin(), types->end(), kFullWindows) - types->begin() + 1;
    other.full_attention_offset %= other.full_attention_interval;
    if (means(other)) return void(c = other);
  }
  other.full_attention_offset = 0;
  // Both at once: the first layers up to the first window, and every n-th behind it.
  other.max_window_layers = std::find(types->begin(), types->end(), kWindow) - types->begin();
  for (other.full_attention_interval = 2; other.full_attention_interval <= c.num_hidden_layers;
       ++other.full_attention_interval) {
    if (means(other)) return void(c = other);
  }
  // In any other order: a letter a layer.
  other.max_window_layers = other.full_attention_interval = 0;
  for (const Json& type : *types)
    other.layer_pattern +=
        static_cast<char>(type == kWindow ? model::LayerKind::window : model::LayerKind::attention);
  if (means(other)) return void(c = other);
  config_error("{}: 'layer_types' is {}: of {} layers each is '{}' or '{}', the latter of a 'sliding_window'",
               keys.place(), formats::shown(*types), c.num_hidden_layers, kFullWindows, kWindow);
}

// A word for a window where there is none would be ignored.
void refuse_words_of_windows(const JsonKeys& keys, const ModelConfig& c) {
  const Json* types = keys.find("layer_types");
  if (types == nullptr ||
      (types->is_array() && std::ssize(*types) == c.num_hidden_layers &&
       std::all_of(types->begin(), types->end(), [](const Json& t) { return t == kFullWindows; }))) {
    return;
  }
  config_error("{}: 'layer_types' is {}: without a window each of {} layers is '{}'", keys.place(),
               formats::shown(*types), c.num_hidden_layers, kFullWindows);
}

void without_windows(ModelConfig& c) {
  if (c.sliding_window > 0) return;
  c.max_window_layers = c.full_attention_interval = c.full_attention_offset = 0;
  c.layer_pattern.clear();
}

// Read with the window itself.
PublishedKey window_in_use() {
  return read_elsewhere("use_sliding_window", [](const ModelConfig& c) { return Written(c.sliding_window > 0); });
}

}  // namespace

PublishedKey window_of_all_layers(int64_t standard) {
  return {.name = "sliding_window",
          .ours = "sliding_window",
          .read =
              [standard](const JsonKeys& keys, ModelConfig& c) {
                c.sliding_window = keys.whole("sliding_window", keys.contains("sliding_window") ? 0 : standard);
              },
          .write = window_or_null};
}

std::vector<PublishedKey> window_of_all_layers_where_used() {
  return {window_in_use(),
          {.name = "sliding_window",
           .ours = "sliding_window",
           .read =
               [](const JsonKeys& keys, ModelConfig& c) {
                 const bool has = keys.boolean("use_sliding_window", false);
                 c.sliding_window =
                     has ? keys.whole("sliding_window", keys.contains("sliding_window") ? 0 : 4096) : 0;
               },
           .write = window_or_null}};
}

std::vector<PublishedKey> window_of_every_other_layer() {
  return {{.name = "sliding_window",
           .ours = "sliding_window",
           .read =
               [](const JsonKeys& keys, ModelConfig& c) {
                 if (keys.contains("sliding_window") && keys.find("sliding_window") == nullptr) {
                   config_error(
                       "{}: 'sliding_window' is null, accepted: a number of tokens; 'layer_types' says "
                       "which layers have it",
                       keys.place());
                 }
                 c.sliding_window = keys.whole("sliding_window", kGptOssWindow);
                 c.full_attention_interval = 2;
                 read_layer_types_window_keys(keys, c);
               },
           .write = window_or_null},
          read_elsewhere("layer_types", layer_types_window_keys)};
}

std::vector<PublishedKey> window_of_last_layers() {
  return {window_in_use(),
          {.name = "sliding_window",
           .ours = "sliding_window",
           .read =
               [](const JsonKeys& keys, ModelConfig& c) {
                 const bool has = keys.boolean("use_sliding_window", false);
                 c.sliding_window = has ? keys.whole("sliding_window", 4096) : 0;
                 c.max_window_layers = has ? keys.whole("max_window_layers", 28) : 0;
                 has ? read_layer_types_window_keys(keys, c) : refuse_words_of_windows(keys, c);
                 without_windows(c);
               },
           .write = window_or_null},
          read_elsewhere(
              "max_window_layers",
              [](const ModelConfig& c) {
                return Written(c.sliding_window > 0 ? c.max_window_layers : c.num_hidden_layers);
              },
              "max_window_layers"),
          // Follows from the others, but for a letter a layer.
          read_elsewhere("layer_types", [](const ModelConfig& c) {
            return c.layer_pattern.empty() ? Written() : layer_types_window_keys(c);
          })};
}

std::vector<PublishedKey> window_of_all_but_every_nth(int64_t window, const char* interval_key, int64_t interval,
                                                      int64_t full, int64_t offset) {
  const std::string key(interval_key);
  std::vector<PublishedKey> all{
      {.name = "sliding_window",
       .ours = "sliding_window",
       .read =
           [=](const JsonKeys& keys, ModelConfig& c) {
             c.sliding_window = keys.whole("sliding_window", keys.contains("sliding_window") ? 0 : window);
             if (c.sliding_window == 0) return refuse_words_of_windows(keys, c);
             c.full_attention_interval = key.empty() ? interval : keys.whole(key.c_str(), interval);
             c.max_window_layers = full;
             c.full_attention_offset = offset;
             read_layer_types_window_keys(keys, c);
           },
       .write = window_or_null},
      read_elsewhere("layer_types", layer_types_window_keys)};
  if (key.empty()) return all;
  all.push_back(read_elsewhere(
      interval_key, [](const ModelConfig& c) { return Written(std::max<int64_t>(1, c.full_attention_interval)); }));
  return all;
}

}  // namespace heddle::config

#include "heddle/config/families/layer_kinds.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

using model::ModelConfig;
using model::Recurrence;
using Written = nlohmann::ordered_json;

namespace {
constexpr const char *kFull = "full_attention", *kRecurrent = "linear_attention";
constexpr const char* kPatternOfKinds = "layer_pattern";
}  // namespace

std::vector<bool> attention_by_words(const JsonKeys& keys, int64_t layers) {
  const Json* words = keys.find("layer_types");
  if (words == nullptr) config_error("{}: 'layer_types' is missing, a word for each layer", keys.place());
  const auto is_known = [](const Json& word) { return word == kFull || word == kRecurrent; };
  if (!words->is_array() || std::ssize(*words) != layers || !std::all_of(words->begin(), words->end(), is_known)) {
    config_error("{}: 'layer_types' is {}: each of {} layers is '{}' or '{}'", keys.place(), formats::shown(*words),
                 layers, kRecurrent, kFull);
  }
  std::vector<bool> attends;
  for (const Json& word : *words) attends.push_back(word == kFull);
  return attends;
}

Written words_of_layers(const ModelConfig& c) {
  Written words = Written::array();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) words.push_back(c.is_recurrent(l) ? kRecurrent : kFull);
  return words;
}

void set_layer_kinds(const JsonKeys& keys, const std::vector<bool>& attends, Recurrence recurrence,
                     ModelConfig& c) {
  const auto count = std::count(attends.begin(), attends.end(), true);
  c.full_attention_interval = 0;
  c.full_attention_last = false;
  c.layer_pattern.clear();
  c.recurrence = count == std::ssize(attends) ? Recurrence::none : recurrence;
  if (!c.recurs()) return;
  std::string pattern;
  for (const bool attention : attends)
    pattern += static_cast<char>(attention ? model::LayerKind::attention : model::LayerKind::recurrence);
  // Attention of a model that Heddle wrote may have windows, of which the words say nothing.
  const std::string known = keys.word(kPatternOfKinds, "");
  std::string attending = known;
  std::replace(attending.begin(), attending.end(), static_cast<char>(model::LayerKind::window),
               static_cast<char>(model::LayerKind::attention));
  if (attending == pattern) {
    c.layer_pattern = known;
    return;
  }
  const bool may_be_last = recurrence == Recurrence::kimi_delta || recurrence == Recurrence::lightning;
  const auto means_the_same = [&](int64_t interval, bool last) {
    c.full_attention_interval = interval;
    c.full_attention_last = last;
    for (size_t l = 0; l < attends.size(); ++l) {
      if (c.has_full_attention(static_cast<int64_t>(l)) != attends[l]) return false;
    }
    return true;
  };
  const int64_t first = std::find(attends.begin(), attends.end(), true) - attends.begin();
  const int64_t interval = count == 0 ? 0 : first + 1;
  if (means_the_same(keys.whole("full_attention_interval", interval), keys.boolean("full_attention_last", false)) ||
      means_the_same(interval, false) || (may_be_last && means_the_same(interval, true)))
    return;
  c.full_attention_interval = 0;
  c.full_attention_last = false;
  c.layer_pattern = pattern;
}

PublishedKey layer_pattern_key() {
  const auto pattern = [](const ModelConfig& c) {
    return c.layer_pattern.empty() ? Written(Written::value_t::discarded) : Written(c.layer_pattern);
  };
  return read_elsewhere(kPatternOfKinds, pattern, kPatternOfKinds);
}

std::vector<PublishedKey> layer_kind_keys() {
  const auto interval = [](const ModelConfig& c) { return Written(c.full_attention_interval); };
  const auto last = [](const ModelConfig& c) { return Written(c.full_attention_last); };
  return {read_elsewhere("full_attention_interval", interval, "full_attention_interval"),
          read_elsewhere("full_attention_last", last, "full_attention_last"), layer_pattern_key()};
}

}  // namespace heddle::config

// Layers of two kinds, with attention and with a recurrence in its place, as files of hybrid models say them: a
// word a layer, "layer_types".
#pragma once

#include <vector>

#include "heddle/config/families/family.h"

namespace heddle::config {

/// Reads which of so many layers have attention, by "layer_types", which must be there. ConfigError where it is no
/// list of a known word a layer.
std::vector<bool> attention_by_words(const JsonKeys& keys, int64_t layers);
nlohmann::ordered_json words_of_layers(const model::ModelConfig& config);

/// Sets which layers have attention: every so many-th, and perhaps the last one, else a letter a layer. What the
/// file says in the words of model/keys.h stays where it means the same. A model without a recurrent layer has no
/// recurrence; any other has `recurrence`.
void set_layer_kinds(const JsonKeys& keys, const std::vector<bool>& attends, model::Recurrence recurrence,
                     model::ModelConfig& config);
/// Those words: "full_attention_interval", "full_attention_last" and "layer_pattern", which set_layer_kinds reads.
std::vector<PublishedKey> layer_kind_keys();
PublishedKey layer_pattern_key();  // of these the last

}  // namespace heddle::config

// Layers that turn queries and keys where they have a window, and nowhere else: EXAONE 4's larger models, K-EXAONE,
// AFMoE, Kolibri.
#pragma once

#include <vector>

#include "heddle/config/families/family.h"

namespace heddle::config {

/// window_of_all_but_every_nth, whose layers without a window turn nothing. ConfigError where these are others than
/// every n-th. Without any window each layer turns.
std::vector<PublishedKey> turned_windows(int64_t window, const char* interval_key, int64_t interval);
/// "use_sliding_window", which a family does not write.
PublishedKey unwritten_window_switch();
/// Sets which layers turn nothing.
void turn_in_windows(model::ModelConfig& config);
/// True if layers with a window turn, and no others do; without any window, if each does.
bool turns_in_windows(const model::ModelConfig& config);

/// Words of dense layers and those with experts in the place of "first_k_dense_replace". Where both are given,
/// Transformers takes the words.
void name_mlp_layers(Json& root);
/// A line for layers of further tokens that a file counts by one of these keys, and that are skipped.
void skip_prediction_layers(const Json& root, const std::string& place, std::initializer_list<const char*> keys,
                            std::vector<std::string>* warnings);

}  // namespace heddle::config

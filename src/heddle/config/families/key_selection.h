// Keys that config.json of all families has whose latent attention selects keys.
#pragma once

#include "heddle/config/families/family.h"

namespace heddle::config {

/// DeepSeek-V3's family with the keys that both DeepSeek-V3.2 and GLM-5 have besides.
Family selecting_family();
/// "indexer_types", a word a layer: full, it has an indexer; shared, it takes the choice of a layer before it.
PublishedKey indexer_types_key();
/// True if these words say which layers have an indexer: all layers attend to chosen keys.
bool says_indexers(const model::ModelConfig& config);

}  // namespace heddle::config

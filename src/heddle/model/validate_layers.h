// Checks of what layers are made of: patterns of a letter a layer, blocks side by side, chunks, gates on inputs.
#pragma once

#include "heddle/model/model_config.h"

namespace heddle::model {

/// ConfigError naming the key and what goes with it.
void validate_layers(const ModelConfig& config);

}  // namespace heddle::model

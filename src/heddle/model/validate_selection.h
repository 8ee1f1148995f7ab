// It checks the keys of a model that selects keys against each other.
#pragma once

#include "heddle/model/model_config.h"

namespace heddle::model {

/// ConfigError where the keys of selection do not go together. For models that select keys, and not entries.
void validate_selection(const ModelConfig& config);

}  // namespace heddle::model

// Layers that predict further tokens, as released folders hold them: they repeat embedding and head, and may be
// absent where the configuration counts them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/config/families/family.h"

namespace heddle::config {

/// True if weights beside the file at `path` have a tensor whose name begins with `first`; nothing where no weights
/// lie there.
std::optional<bool> weights_beside_have(const std::string& path, std::string_view first);
/// Takes their number as 0 where weights lie beside the file and have no such layer, with a line for `warnings`.
void count_prediction_layers(model::ModelConfig& config, const std::string& path,
                             std::vector<std::string>* warnings);
/// Takes it so where no name there begins as `layer` does, the start of those of the first such layer.
void count_prediction_layers(model::ModelConfig& config, const std::string& path,
                             std::vector<std::string>* warnings, const std::string& layer);
/// Family::further: their copies; and biases of zero for routers that choose by score alone.
FurtherTensors prediction_copies(const model::ModelConfig& config);
/// Family::repeats.
std::string_view repeated_by_predictions(std::string_view name, std::string_view head);

}  // namespace heddle::config

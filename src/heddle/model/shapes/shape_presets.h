// Shapes of published models by name, from their released configurations.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/model/shapes/shape.h"

namespace heddle::model {

/// All presets, each under its usual name.
const std::vector<Shape>& shape_presets();

/// The preset that `name` means, or nullptr. Case and punctuation don't matter, nor do "meta", "nvidia" and the
/// like in front: "LLAMA3.1_405B", "Llama-3.1-405B" and "llama 3 405b" are one model.
const Shape* find_shape(std::string_view name);

}  // namespace heddle::model

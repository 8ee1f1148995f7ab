// The sizes of a model out of any config.json, for the search, which only calculates with them. Families that
// Heddle does not build are read too, by the words that published files share.
#pragma once

#include <string>

#include "heddle/model/shapes/shape.h"

namespace heddle::config {

/// Sizes that the file leaves out are 0 or follow from others; keys without a meaning here are passed over.
/// ConfigError naming file and key where one is of the wrong type, or the sizes are no model's.
model::Shape read_shape_json(const std::string& path, const std::string& name);

}  // namespace heddle::config

// The sizes of a model out of a released config.json, for the search, which only calculates with them. Families
// that Heddle does not build are read by a table of their forms. One without a row is refused: a count by words
// that families share would be wrong without a sign of it.
#pragma once

#include <string>

#include "heddle/model/shapes/shape.h"

namespace heddle::config {

/// The parameters of the shape are those that Transformers makes of the file, with the biases that balance experts.
/// Keys without a meaning for sizes are passed over. ConfigError naming the file and a family that has no row. It
/// names a key that is missing, is of the wrong type or says another form, and sizes that are no model's.
model::Shape read_shape_json(const std::string& path, const std::string& name);

}  // namespace heddle::config

// Released folders that hold a text model beside a model of pictures: its keys in config.json, its tensors' names.
#pragma once

#include <string>

#include "heddle/config/families/family.h"

namespace heddle::config {

/// Puts the keys of "text_config" in the place of the root's. What stands outside goes before it. ConfigError where
/// there are none.
void take_text_config(Json& root, const std::string& place);
/// "model.layers.0.…" as "model.language_model.layers.0.…".
std::string spelt_beside_pictures(std::string name);

}  // namespace heddle::config

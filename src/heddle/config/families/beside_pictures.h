// Released folders that hold a text model beside a model of pictures: its keys in config.json, its tensors' names.
#pragma once

#include <string>
#include <string_view>

#include "heddle/config/families/family.h"

namespace heddle::config {

/// Puts the keys of "text_config" in the place of the root's. What stands outside goes before it. ConfigError where
/// there are none.
void take_text_config(Json& root, const std::string& place);
/// "model.layers.0.…" as "model.language_model.layers.0.…".
std::string spelt_beside_pictures(std::string name);
/// "model.layers.0.…" as "language_model.model.layers.0.…", and the head likewise, as before Transformers 5.
std::string spelt_ahead_of_model(std::string name);
/// True for tensors of a model of pictures, and of what joins it to the text model, by either kind of names.
bool is_of_pictures(std::string_view name, const HasTensor& has);
/// A text model's family for folders that hold a model of pictures too, with "text_config" and the parts of
/// is_of_pictures(). It is written as the text model.
Family beside_pictures(Family text, const char* architecture, const char* model_type);

}  // namespace heddle::config

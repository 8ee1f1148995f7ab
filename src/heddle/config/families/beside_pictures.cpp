#include "heddle/config/families/beside_pictures.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

void take_text_config(Json& root, const std::string& place) {
  Json text = root.value("text_config", Json());
  if (!text.is_object()) {
    config_error("{}: 'text_config' is {}, an object is expected", place,
                 text.is_null() ? "missing" : formats::shown(text));
  }
  for (const char* name : {"tie_word_embeddings", "quantization_config", "heddle"}) {
    if (const Json outside = root.value(name, Json()); !outside.is_null()) text[name] = outside;
  }
  root = std::move(text);
}

std::string spelt_beside_pictures(std::string name) {
  constexpr std::string_view kModel = "model.";
  return name.starts_with(kModel) ? name.insert(kModel.size(), "language_model.") : name;
}

std::string spelt_ahead_of_model(std::string name) { return "language_model." + name; }

bool is_of_pictures(std::string_view name, const HasTensor&) {
  constexpr std::string_view kModel = "model.";
  if (name.starts_with(kModel)) name.remove_prefix(kModel.size());
  constexpr std::array<std::string_view, 3> kParts{"vision_tower.", "multi_modal_projector.", "mm_projector."};
  return std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) { return name.starts_with(part); });
}

Family beside_pictures(Family text, const char* architecture, const char* model_type) {
  text.architecture = architecture;
  text.model_type = model_type;
  text.rewrite = take_text_config;
  text.passed_over = is_of_pictures;
  text.holds = [](const model::ModelConfig&) { return false; };
  text.presets.clear();
  return text;
}

}  // namespace heddle::config

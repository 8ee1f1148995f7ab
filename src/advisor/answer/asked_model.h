// The model that a search or a plan is asked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/model/shapes/shape.h"

namespace heddle::advisor {

struct SearchedModel {
  model::Shape shape;
  /// Settings of Heddle for all of a folder's model; null for a name, and where Heddle does not train such a model.
  std::shared_ptr<const std::vector<std::string>> constants;
  std::string unread;  // why Heddle does not: its sizes alone are known then
};

/// Reads a published model by name, with its owner or without ("Qwen/Qwen3-30B-A3B"). Or a folder with a
/// config.json of Hugging Face Transformers, or a model of the Hub that its cache holds. For so many tokens.
/// ConfigError where it is none of these, with the nearest name, or the sizes are no model's.
SearchedModel read_model(const std::string& name_or_folder, int64_t sequence);

}  // namespace heddle::advisor

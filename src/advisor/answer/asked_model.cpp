#include "advisor/answer/asked_model.h"

#include <filesystem>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/say.h"
#include "heddle/config/model_json.h"
#include "heddle/config/shape_json.h"
#include "heddle/formats/hub_cache.h"
#include "heddle/formats/hub_name.h"
#include "heddle/model/shapes/shape_names.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/planner/launch_settings.h"

namespace heddle::advisor {

namespace {

SearchedModel read_folder(const std::filesystem::path& path, const std::string& name, int64_t sequence) {
  const std::filesystem::path file = path / "config.json";
  SearchedModel read;
  try {
    model::ModelConfig config = config::read_huggingface_config(file.string());
    if (!config.learns_positions())
      config.max_position_embeddings = std::max(config.max_position_embeddings, sequence);
    read.shape = model::shape_of(config, name);
    read.constants = std::make_shared<const std::vector<std::string>>(planner::settings_of_model(config));
  } catch (const ConfigError& error) {
    read.shape = config::read_shape_json(file.string(), name);
    read.unread = error.what();
    read.unread.resize(
        std::min(read.unread.size(), read.unread.find(", accepted: ")));  // the names of all families
  }
  return read;
}

[[noreturn]] void refuse(const std::string& name) {
  std::vector<std::string> names;
  for (const model::Shape& s : model::shape_presets()) names.push_back(s.name);
  const std::string near = model::names_like(name, names);
  const std::string hub = formats::hub_hint(name);
  config_error("model '{}' is not known and no folder with a config.json{}{}", name.substr(0, 96),
               near.empty() && hub.empty() ? model::kSuchNames : near, hub);
}

// The cache's model if it holds the revision. Else the published one of that name, which has one revision.
SearchedModel read_hub(const formats::HubName& hub, const std::string& name, int64_t sequence) {
  std::error_code error;
  const std::string cached = formats::cached_folder(hub);
  if (!cached.empty() && std::filesystem::exists(std::filesystem::path(cached) / "config.json", error))
    return read_folder(cached, hub.model, sequence);
  if (hub.revision != "main")
    config_error(
        "model '{}': the cache {} has no config.json of that revision; nothing is downloaded: `{}` does it", name,
        formats::hub_cache_folder(), formats::download_command(hub));
  const model::Shape* known = model::find_shape(hub.text());
  if (known == nullptr) refuse(name);
  say(stderr, "{}: taken as the published {}; the cache has no {}\n", name, known->name, hub.text());
  return {*known, nullptr, ""};
}

}  // namespace

SearchedModel read_model(const std::string& name, int64_t sequence) {
  if (name.empty()) config_error("no model is named{}, or a folder with a config.json", model::kSuchNames);
  const std::optional<formats::HubName> hub = formats::hub_name(name);
  if (const model::Shape* known = hub ? nullptr : model::find_shape(name)) return {*known, nullptr, ""};
  const std::filesystem::path path(name);
  std::error_code error;
  if (std::filesystem::exists(path / "config.json", error))
    return read_folder(path,
                       path.filename().empty() ? path.parent_path().filename().string() : path.filename().string(),
                       sequence);
  if (!hub) refuse(name);
  return read_hub(*hub, name, sequence);
}

}  // namespace heddle::advisor

#include "check/subject.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "advisor/script/launch_script.h"
#include "heddle/base/error.h"
#include "heddle/config/model_json.h"
#include "heddle/config/run_config.h"
#include "heddle/planner/launch_settings.h"

namespace heddle::check {

namespace {

using nlohmann::json;

const std::string& text_of(const json& value, const std::string& place) {
  if (!value.is_string()) config_error("{}: a text is accepted", place);
  const std::string& text = value.get_ref<const std::string&>();
  if (std::ssize(text) > config::kMostConfigBytes)
    config_error("{}: more than {} bytes", place, config::kMostConfigBytes);
  return text;
}

model::ModelConfig from_settings(const std::string& toml, const std::string& place,
                                 const std::vector<std::string>& set, std::vector<std::string>& warnings) {
  return config::parse_run_config(toml, place, set, &warnings).model;
}

// Arguments without a command are those of the usual one.
model::ModelConfig from_megatron(const std::string& text, const std::string& place,
                                 std::vector<std::string>& warnings) {
  std::string arguments = text;
  std::replace(arguments.begin(), arguments.end(), '\n', ' ');
  const bool bare =
      text.find_first_not_of(" \n\t") != std::string::npos && text[text.find_first_not_of(" \n\t")] == '-';
  const advisor::LaunchScript script =
      advisor::read_launch_script(bare ? "torchrun --nproc_per_node 1 pretrain_gpt.py " + arguments : text, place);
  const std::vector<std::string>& sizes = script.others.sizes;
  if (!sizes.empty()) config_error("{}: Heddle has no model with {}", place, fmt::join(sizes, " "));
  if (!script.others.unknown.empty())
    warnings.push_back(
        fmt::format("{}: not known, and may change the model: {}", place, fmt::join(script.others.unknown, " ")));
  advisor::Launch launch = script.launch;
  launch.job.constants = std::make_shared<const std::vector<std::string>>(script.constants.settings);
  std::vector<std::string> model;
  for (const std::string& setting : planner::settings_of(launch)) {
    if (setting.starts_with("model.") || setting.starts_with("moe.")) model.push_back(setting);
  }
  return from_settings("", place, model, warnings);
}

}  // namespace

model::ModelConfig read_subject(const json& model, const std::string& place, int64_t sequence_length,
                                std::vector<std::string>& warnings) {
  if (!model.is_object() || model.size() != 1)
    config_error("{}: model: one of config, toml and megatron is accepted", place);
  const std::string kind = model.begin().key(), at = place + ": model." + kind;
  const json& value = model.begin().value();
  model::ModelConfig config;
  if (kind == "config") {
    if (!value.is_object()) config_error("{}: an object is accepted, as in a config.json of Transformers", at);
    config = config::model_config_from_json(value, at, &warnings);
  } else if (kind == "toml") {
    config = from_settings(text_of(value, at), at, {}, warnings);
  } else if (kind == "megatron") {
    config = from_megatron(text_of(value, at), at, warnings);
  } else {
    config_error("{}: model.{}: accepted: config, toml, megatron{}", place, kind.substr(0, 40),
                 did_you_mean(kind, {"config", "toml", "megatron"}));
  }
  config.max_position_embeddings = config.learns_positions()
                                       ? config.max_position_embeddings
                                       : std::max(config.max_position_embeddings, sequence_length);
  config.embedding_dropout = config.residual_dropout = config.attention_dropout = 0;
  return config;
}

}  // namespace heddle::check

// A launch that was searched for as input of Heddle: settings, and the configuration that they make. A property
// that none of its keys can say is refused here; whether it can be run its own checks say (config, plan/check).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/search/launch.h"

namespace heddle::planner {

/// The backend of Heddle's for such a device; "" where there is none.
std::string_view backend_on(const cost::Accelerator& device);

/// "key=value" as `heddle train --set` takes them, without a check.
std::vector<std::string> settings_of(const search::Launch& launch);
/// The settings of a whole model: every key that it has.
std::vector<std::string> settings_of_model(const model::ModelConfig& model);
/// The configuration that they make. ConfigError where a key does not take its value.
config::RunConfig config_of(const search::Launch& launch);
/// The configuration as TOML, with what could not be carried over.
std::string config_text(const search::Launch& launch);

/// Why Heddle can't train the model of a launch so, a line each; the device may be one that it has no backend for.
std::vector<std::string> refusals_of_training(const search::Launch& launch);
/// Why Heddle can't run the launch, a line each; empty when it can.
std::vector<std::string> refusals_of(const search::Launch& launch);

}  // namespace heddle::planner

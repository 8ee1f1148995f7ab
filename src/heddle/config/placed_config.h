// A configuration with the place where each key was set, for what can only be told of all of them together.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/plan/refusals.h"

namespace heddle::config {

struct PlacedConfig {
  RunConfig config;
  std::string file;                           // stands for the place of a key that nobody set
  std::map<std::string, std::string> places;  // by key: "run.toml:3:1", "--set mesh.tp=2"

  const std::string& place_of(const std::string& key) const;
  /// ConfigError "PLACE: MESSAGE" with the first refusal, unless there is none.
  void refuse(const std::vector<plan::Refusal>& refusals) const;
  /// ConfigError with the place of a key that does not go with others: model and plan, mesh and ranks, batch and
  /// microbatch, learning rates, backend, the run's name.
  void check() const;
};

/// Reads as read_run_config.
PlacedConfig read_placed_config(const std::string& path, const std::vector<std::string>& overrides = {},
                                std::vector<std::string>* warnings = nullptr);

}  // namespace heddle::config

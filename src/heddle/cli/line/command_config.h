// Reads a configuration for a command. It is refused by one line and nothing beside it, or accepted. A setting that
// is hardly meant is then reported once on standard error.
#pragma once

#include <string>
#include <vector>

#include "heddle/config/run_config.h"

namespace heddle::cli {

struct ConfigUse {
  bool tell = true;     // else it is read quietly, as by all ranks of a job but the first
  bool is_plan = true;  // as it stands; false: a plan is yet to be chosen for it
};

/// Returns the configuration. ConfigError also for what is refused of its plan (plan/check), with the key's place,
/// before any work is done.
config::RunConfig command_config(const std::string& path, const std::vector<std::string>& set,
                                 const ConfigUse& how = {});

}  // namespace heddle::cli

// A configuration of Heddle as a job on an accelerator that is only described: the other way round of
// planner/launch_settings.
#pragma once

#include <string>
#include <vector>

#include "advisor/words.h"
#include "heddle/config/run_config.h"

namespace heddle::advisor {

/// The launch of a configuration on such a device. Adds to `notes` what the estimate does not have. ConfigError for
/// what it can't describe, such as a schedule from a file.
Launch launch_of_config(const config::RunConfig& config, const cost::Accelerator& device,
                        std::vector<std::string>& notes);

}  // namespace heddle::advisor

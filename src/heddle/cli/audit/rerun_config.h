// The configuration by which a run's steps are taken again.
#pragma once

#include <string>
#include <vector>

#include "heddle/config/run_config.h"

namespace heddle::cli {

/// Returns the run's own configuration, with `set`. Another number of ranks (0: its own) keeps the run's tensor and
/// context parallelism, whose sums have an order, and copies of the whole model. ConfigError where `folder` is no
/// run, or the layout is one in which the run's bits don't hold.
config::RunConfig rerun_config(const std::string& folder, const std::vector<std::string>& set, int ranks);

}  // namespace heddle::cli

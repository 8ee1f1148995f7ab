// A configuration read for a command, with what it says that is hardly meant told once on standard error.
#pragma once

#include <string>
#include <vector>

#include "heddle/config/run_config.h"

namespace heddle::cli {

config::RunConfig told_config(const std::string& path, const std::vector<std::string>& set);

}  // namespace heddle::cli

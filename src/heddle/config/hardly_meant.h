// Settings of a configuration that are accepted but hardly meant.
#pragma once

#include <string>
#include <vector>

#include "heddle/config/run_config.h"

namespace heddle::config {

/// A line each: the key that it is about, and what will come of it.
struct Remark {
  std::string key, text;
};
std::vector<Remark> hardly_meant(const RunConfig& config);

}  // namespace heddle::config

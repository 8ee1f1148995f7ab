#include "heddle/cli/line/told_config.h"

#include <cstdio>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"

namespace heddle::cli {

config::RunConfig told_config(const std::string& path, const std::vector<std::string>& set) {
  std::vector<std::string> warnings;
  config::RunConfig config = config::read_run_config(path, set, &warnings);
  for (const std::string& warning : warnings) fmt::print(stderr, "heddle: warning: {}\n", escaped(warning));
  return config;
}

}  // namespace heddle::cli

// A launch script as a plan's subject: its text, the files beside it and the variables that its environment sets.
#pragma once

#include <string>
#include <vector>

#include "advisor/script/launch_script.h"

namespace heddle::advisor {

struct ScriptRequest {
  std::string path;              // or "-", the standard input
  std::string cluster;           // as read_cluster takes it; empty: as usual for the script
  int64_t devices = 0;           // 0: as many as the script starts
  double imbalance = 1;          // rows of the fullest expert rank over the mean
  std::vector<std::string> set;  // NAME=VALUE
};

struct ScriptJob {
  std::string path, text;
  ScriptContext context;
  LaunchScript script;

  /// Lines about flags that could not be read or priced.
  std::vector<std::string> unread() const;
};

/// Reads the script and what it sources; it is never run. ConfigError with file and line.
ScriptJob read_script_job(const ScriptRequest& request);

}  // namespace heddle::advisor

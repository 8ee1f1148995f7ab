// A configuration in a file of its own, and the profile of a machine that was never measured.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "heddle/base/files/output_file.h"
#include "heddle/cost/machine_profile.h"

namespace heddle::planner {

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text)
      : path_((std::filesystem::temp_directory_path() / ("heddle-planner-" + std::to_string(getpid()) + ".toml"))
                  .string()) {
    write_file(path_, text);
  }
  ~ConfigFile() { std::remove(path_.c_str()); }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline cost::MachineProfile made_profile() {
  cost::MachineProfile p;
  p.cores = 8;
  p.bf16_flops_per_s = p.f32_flops_per_s = p.f64_flops_per_s = 4e11;
  p.copy_bytes_per_s = 4e10;
  p.launch_us = 2;
  p.enqueue_us = 1;
  p.together = {1, 1, 1, 1, 1, 1, 1, 1};
  for (const int ranks : {2, 4}) {
    p.links.push_back({cost::Link::threads, ranks, 1e3, 5.0 * ranks});
    p.links.push_back({cost::Link::threads, ranks, 1e6, 5.0 * ranks + 250});
  }
  return p;
}

}  // namespace heddle::planner

// Options on the line of `heddle train`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::cli {

struct TrainOptions {
  std::string config;            // a file, or a released model: a folder or a name on the Hub
  std::string data;              // of a released model: what it learns
  bool lora = false;             // of a released model: adapters beside frozen weights
  std::vector<std::string> set;  // key=value
  int64_t steps = 0;             // 0: as configured
  double minutes = 0;            // 0: as configured
  int64_t ranks = 0;             // 0: as configured, or as many as the launcher has started
  std::string mode;              // auto, save-memory, overlap: the plan is chosen; empty: as configured
  std::string profile;           // for that; empty: the one that `heddle profile` keeps
  bool resume = false;
  bool trace = false;
  std::string mlflow, prometheus;  // "": none
  int64_t log_every = 0;           // 0: as it suits the reader
  bool timestamps = false, verbose = false, quiet = false;
  bool json = false;
};

/// Settings, and more that go over them.
inline std::vector<std::string> with(std::vector<std::string> set, const std::vector<std::string>& more) {
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

}  // namespace heddle::cli

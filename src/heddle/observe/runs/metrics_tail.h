// A metrics log that is being written, read as it grows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/observe/step_metrics.h"

namespace heddle::observe {

class MetricsTail {
 public:
  explicit MetricsTail(std::string path) : path_(std::move(path)) {}

  /// Takes what has come since; a log that was cut or begun anew is read from its beginning. A file that is not
  /// there yet has no steps. Lines that are no steps are passed over. Returns true if anything has come.
  bool read();

  /// Steps read so far, each once; the later one holds.
  const std::vector<StepMetrics>& steps() const { return steps_; }

 private:
  std::string path_;
  int64_t offset_ = 0;  // offset of the first line not yet taken
  std::vector<StepMetrics> steps_;
};

}  // namespace heddle::observe

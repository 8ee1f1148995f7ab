// Metrics of one training step: its figures, and what is no number.
#pragma once

#include <cstdint>
#include <string>

#include "heddle/observe/figures.h"

namespace heddle::observe {

struct StepMetrics : Figures {
  int64_t step = 0;
  double wall_time_s = 0;      // seconds since 1970
  std::string weights_digest;  // after the step; "": not taken
  std::string alarm;           // slow parts now, in a few words, for the watcher; not logged
};

}  // namespace heddle::observe

// From a row of a table of points to a job: the model's shape, the device, the layout, and what the software of
// that source and release does. What a row leaves blank is filled in where it follows from the rest or from the
// software's defaults, and said; a row that lacks more gets a reason instead.
#pragma once

#include <string>

#include "heddle/search/estimate.h"
#include "heddle/search/predict/points.h"

namespace heddle::search {

/// Who measured with what: what a calibration scalar belongs to.
struct Release {
  std::string stack;  // megatron, fsdp, deepspeed
  std::string name;   // such as "nemo 26.04"
  double date = 0;    // years since 2000; 0: unknown
};

struct PointJob {
  Job job;
  Release release;
  std::string reason;       // why there is no job; "" when there is one
  std::string time_reason;  // why only its memory is known; "" when time is too
  std::string assumed;      // what was filled in, "; " between
};

PointJob job_of_point(const PointTable& table, size_t row);

/// Tokens a second and device as the row has them, or from its TFLOP/s by the convention of its source; 0: neither.
double measured_tokens_per_s(const PointTable& table, size_t row, const PointJob& point);
/// Measured peak memory in bytes; 0: none, or a formula's.
double measured_peak_bytes(const PointTable& table, size_t row);

}  // namespace heddle::search

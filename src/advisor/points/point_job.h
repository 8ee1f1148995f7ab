// Makes a job of a row of a table of points: the model's shape, the device, the layout, and the behaviour of the
// software of that source and release. What a row leaves blank is filled in where it follows from the rest or from
// the software's defaults, and said; a row that lacks more gets a reason instead.
#pragma once

#include <string>

#include "advisor/points/points.h"
#include "advisor/points/release.h"
#include "advisor/words.h"

namespace heddle::advisor {

struct PointJob {
  Job job;
  Release release;
  std::string reason;           // why there is no job; "" when there is one
  bool batch_assumed = false;   // of a pipeline: the bubble is not known
  bool layout_assumed = false;  // the row prints none
  bool sequence_assumed = false, microbatch_assumed = false, devices_assumed = false;
  bool contradicts = false;  // its TFLOP/s and tokens/s are not of this model
  std::string words;         // how it ran, as the row says
  std::string assumed;       // values that were filled in, "; " between

  /// True if the row prints what its time follows from, and what its memory does.
  bool tells_time() const { return !layout_assumed && !batch_assumed && !contradicts; }
  bool tells_memory() const { return tells_time() && !sequence_assumed && !microbatch_assumed && !devices_assumed; }
};

PointJob job_of_point(const PointTable& table, size_t row);

/// Tokens a second and device as the row has them, or from its TFLOP/s by the convention of its source; 0: neither.
double measured_tokens_per_s(const PointTable& table, size_t row, const PointJob& point);
/// Measured peak memory in bytes; 0: none, or a formula's.
double measured_peak_bytes(const PointTable& table, size_t row);

}  // namespace heddle::advisor

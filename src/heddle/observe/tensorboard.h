// Writes scalars as a TensorBoard event file.
//
// The file is a row of records: u64 length, masked CRC-32C of those 8 bytes, the payload, its masked CRC-32C, all
// little-endian. The payload is a tensorflow.Event message: wall_time (1, double), step (2, int64), file_version
// (3, string) or summary (5), whose values (1) have a tag (1) and a simple_value (2, float). mask(crc) =
// rotate_right(crc, 15) + 0xa282ead8. Source: TensorFlow's record_writer and event.proto.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "heddle/base/files/output_file.h"
#include "heddle/observe/step_metrics.h"

namespace heddle::observe {

struct Scalar {
  std::string tag;
  double value = 0;
};

/// One record with this payload.
std::string tensorboard_record(std::string_view payload);

class TensorboardFile {
 public:
  /// Makes `folder` where needed and in it a new file `events.out.tfevents.<time>.<host>.<pid>.<count>`, which
  /// TensorBoard takes as going on from those already there. Throws SystemError.
  explicit TensorboardFile(const std::string& folder);

  /// One event with all the scalars; it is in the kernel's hands on return. Throws SystemError.
  void add(int64_t step, double wall_time_s, std::span<const Scalar> scalars);

  /// Every number that the step has, under its row's tag, or as "extra/<key>".
  void add(const StepMetrics& metrics);

  const std::string& path() const { return file_.path(); }
  void close() { file_.close(); }

 private:
  OutputFile file_;
};

}  // namespace heddle::observe

// The run's memory on disk: one JSON object a step, one line each.
//
// A line reaches the kernel before `add` returns, so a crash loses at most the line being written; when the disk is
// full the part of a line is taken back and a SystemError raised. JSON has no NaN: such values are the strings
// "nan", "inf" and "-inf". Keys are those of metric_fields(), beside "step", "wall_time_s", "weights_digest" (16
// hexadecimal digits), "extra" (an object of numbers), "expert_loads" (rows of numbers, one a layer) and "copies"
// (of each of these layers an object: "routed" and "computed", rows of numbers, and the keys of copy_fields()); a
// reader skips keys it doesn't know.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/files/output_file.h"
#include "heddle/observe/step_metrics.h"

namespace heddle::observe {

class MetricsLog {
 public:
  /// Begins an empty log. Throws SystemError.
  static MetricsLog begin(const std::string& path);

  /// Goes on with a log (or begins one, if there is none): a torn last line and all lines from the first of
  /// `next_step` or later are cut off, for those steps will run again. Other broken lines stay where they are. What
  /// was cut or is broken is told in `warnings`. Throws SystemError.
  static MetricsLog resume(const std::string& path, int64_t next_step, std::vector<std::string>& warnings);

  /// Throws SystemError; the log then ends with the line before.
  void add(const StepMetrics& metrics);

  void close() { file_.close(); }

 private:
  explicit MetricsLog(OutputFile file) : file_(std::move(file)) {}
  OutputFile file_;
};

/// One step as a line of the log, without the line's end.
std::string metrics_line(const StepMetrics& metrics);

/// That line read back. ConfigError.
StepMetrics step_of_line(std::string_view line);

/// Longer ones are no steps.
inline constexpr size_t kLongestLineBytes = 16 << 20;

struct MetricsHistory {
  std::vector<StepMetrics> steps;  // steps increase; figures of layers as LoadFrames keeps them
  std::vector<std::string> warnings;
};

/// What becomes of a line that is no step: the file is refused, or the line passed over with a warning.
enum class BrokenLines : uint8_t { refuse, skip };

/// Reads a log. A last line that is torn is dropped with a warning; where a step comes again (a run was resumed),
/// the later one holds. Any other broken line or one longer than 16 MiB is refused, in a ConfigError with the
/// line's number, or skipped; so are more than 20 million steps. A file that can't be read is a SystemError.
MetricsHistory read_metrics(const std::string& path, BrokenLines broken = BrokenLines::refuse);

}  // namespace heddle::observe

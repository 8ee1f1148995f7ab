// The run's memory on disk: one JSON object a step, one line each.
//
// A line reaches the kernel before `add` returns, so a crash loses at most the line being written. When the disk is
// full, the part of a line is taken back and a SystemError raised. JSON has no NaN: such values are the strings
// "nan", "inf" and "-inf". Keys are those of the table of figures (figures.h), beside "step", "wall_time_s",
// "weights_digest" (16 hexadecimal digits) and "extra" (an object of the figures whose rows say so). Layers are in
// "expert_loads" (rows of numbers, one a layer) and "copies" (an object for each of these layers: "routed" and
// "computed", rows of numbers, and the group's figures by their names in the run). A reader skips keys that it
// doesn't know, and takes earlier names of a figure as its own.
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

  /// Goes on with a log, or begins one, if there is none. A torn last line and all lines from the first of
  /// `next_step` or later are cut off, for those steps will run again. Other broken lines stay where they are.
  /// `warnings` receives what was cut, is broken, or is missing before `next_step`. Throws SystemError.
  static MetricsLog resume(const std::string& path, int64_t next_step, std::vector<std::string>& warnings);

  /// Adds a step. Throws SystemError; the log then ends with the line before.
  void add(const StepMetrics& metrics);

  void close() { file_.close(); }

 private:
  explicit MetricsLog(OutputFile file) : file_(std::move(file)) {}
  OutputFile file_;
};

/// One step as a line of the log, without the line's end.
std::string metrics_line(const StepMetrics& metrics);

/// Reads that line back. ConfigError.
StepMetrics step_of_line(std::string_view line);

/// Longest line of a step; longer ones are no steps.
inline constexpr size_t kLongestLineBytes = 16 << 20;

struct MetricsHistory {
  std::vector<StepMetrics> steps;  // steps increase; figures of layers as LoadFrames keeps them
  std::vector<std::string> warnings;
};

/// Treatment of a line that is no step: the file is refused, or the line passed over with a warning.
enum class BrokenLines : uint8_t { refuse, skip };

/// Reads a log. Steps without a line give a warning. A last line that is torn is dropped with a warning; where a
/// step comes again (a run was resumed), the later one holds. Any other broken line or one longer than 16 MiB is
/// refused, in a ConfigError with the line's number, or skipped; so are more than 20 million steps. A file that
/// can't be read is a SystemError.
MetricsHistory read_metrics(const std::string& path, BrokenLines broken = BrokenLines::refuse);

}  // namespace heddle::observe

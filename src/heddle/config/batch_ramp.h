// A batch that grows in the first part of a run, as Megatron-LM's --rampup-batch-size. It goes from `start`
// sequences a step by `increment` to the run's whole batch, in equal parts of the first `sequences` of the data.
// The batch of a step is a function of what was read before it, and so of its number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::config {

struct BatchRamp {
  int64_t start = 0, increment = 0, sequences = 0;

  explicit operator bool() const { return start > 0; }
  /// Batches of the run, from the first to the whole one.
  std::vector<int64_t> batches(int64_t whole) const;
  /// The batch of the step that follows `steps`, and the sequences that those have read.
  struct Place {
    int64_t consumed = 0, batch = 0;
  };
  Place after(int64_t steps, int64_t whole) const;
  /// The first number of steps, 1 or more, that have read so many sequences.
  int64_t steps_to(int64_t consumed, int64_t whole) const;
  bool operator==(const BatchRamp&) const = default;
};

/// "START INCREMENT SEQUENCES"; "": none. ConfigError without a place.
BatchRamp parse_batch_ramp(std::string_view text);
std::string text_of(const BatchRamp& ramp);
/// Each is a schedule of its own in the step program.
inline constexpr int64_t kMostBatches = 64;
/// ConfigError without a place unless the ramp leads to `whole` and each of its batches is whole multiples of
/// `unit`.
void check_batch_ramp(const BatchRamp& ramp, int64_t whole, int64_t unit);

}  // namespace heddle::config

// What a paced run took, and whether that figure may be believed.
//
// Paced ops sleep until their profiled time is over, so that many ranks share few cores as if each had its own.
// That holds only as long as the cores are free whenever an op wakes: where the process keeps them busy for more
// than kMostPacedUse of the time, ops run later than their pace says and the figure is refused.
#pragma once

#include <cstdint>

namespace heddle::device {

inline constexpr double kMostPacedUse = 0.7;

/// A stretch of time, and the processor time that this process (all its threads) used in it.
struct PacedTime {
  int64_t wall_ns = 0;
  int64_t processor_ns = 0;
  int cores = 1;  // that the process may use

  /// Of all cores' time.
  double processor_use() const;
  bool believable() const { return processor_use() <= kMostPacedUse; }
  /// The figure. ConfigError saying how much slower to pace when it is not believable.
  double seconds() const;
};

/// Starts when it is made.
class PacedTimer {
 public:
  /// `cores`: what this process may use; 0: the processors it is allowed to run on. Ranks in several processes of a
  /// machine give their share.
  explicit PacedTimer(int cores = 0);
  PacedTime elapsed() const;

 private:
  int cores_;
  int64_t wall_ns_, processor_ns_;
};

/// Processors that this process is allowed to run on.
int allowed_cores();

}  // namespace heddle::device

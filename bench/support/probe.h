// What the machine can do at this moment, by our own best product and by a plain copy. Clocks of shared machines
// wander, so a benchmark samples its probes in turn with what it measures and compares medians of one run.
//
// A probe runs on a thread of its own that ends with it: an idle OpenMP team left behind would make the OpenMP
// library think the machine full and put the teams of others to sleep early.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heddle/base/dtype.h"
#include "heddle/device/host/host_arena.h"

namespace heddle::bench {

/// Bytes of this process in memory: at most so far, and now (VmHWM and VmRSS of /proc/self/status).
struct ResidentBytes {
  int64_t most = 0;
  int64_t now = 0;
};
ResidentBytes resident_bytes();

/// FLOP/s of forward products by packed weights, over a few large shapes.
class MatrixProbe {
 public:
  MatrixProbe(Dtype dtype, int threads);
  ~MatrixProbe();
  /// Times each shape once.
  void sample();
  /// The best of the shapes' medians, in FLOP/s, and its shape.
  double best_flops_per_s() const;
  std::string best_shape() const;
  /// FLOP/s of that shape, one for each sample.
  const std::vector<double>& best_rates() const;

 private:
  struct Product;
  size_t best() const;
  Dtype dtype_;
  int threads_;
  std::vector<std::unique_ptr<Product>> products_;
};

/// Bytes read plus bytes written per second of a memcpy far larger than the caches, by all threads.
class CopyProbe {
 public:
  explicit CopyProbe(int threads);
  void sample();
  double bytes_per_s() const;                                  // median
  const std::vector<double>& rates() const { return rates_; }  // one for each sample

 private:
  static constexpr int64_t kBytes = int64_t{512} << 20;
  int threads_;
  device::HostArena from_, to_;  // in large pages, as the arena of a step
  std::vector<double> rates_;
};

}  // namespace heddle::bench

// How long ops took on a machine, and what that says of ops of other sizes.
//
// An op is described by what decides its time on any device: its kind, its type, its rows, the columns it reads and
// writes, its groups (experts), its FLOPs and bytes. The time of one that was not measured comes from those of its
// kind that are nearest in the logarithms of these sizes: each says what part of the kind's best rate was reached
// there, and their weighted mean is taken (Shepard's inverse distances), so that a time scales with FLOPs and bytes
// between and beyond what was measured.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "heddle/base/dtype.h"
#include "heddle/ir/listing.h"

namespace heddle::cost {

struct OpShape {
  std::string kind;
  Dtype dtype = Dtype::f32;
  double rows = 0, in = 0, out = 0;  // rows of the first operand, its columns, and those of what is written
  double groups = 1;                 // experts whose rows are multiplied apart
  double flops = 0, bytes = 0;
};
OpShape shape_of(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows, bool overwrite = false);

struct OpTime {
  OpShape shape;
  int threads = 1;
  double resident_bytes = 0;  // of the program around it: whether its operands can lie in a cache
  double us = 0;
};

class OpTimes {
 public:
  void add(OpTime time);
  bool empty() const { return times_.empty(); }
  const std::vector<OpTime>& all() const { return times_; }
  /// Whether an op of this kind and type was measured with so many threads.
  bool knows(const OpShape& shape, int threads) const;
  /// Microseconds. InternalError when it is not known.
  double us(const OpShape& shape, int threads, double resident_bytes) const;

 private:
  static constexpr size_t kFeatures = 6;
  struct Kind {
    double flops_per_us = 0, bytes_per_us = 0;  // the best of any sample
    double least_us = 0;
    std::vector<size_t> samples;  // indices of times_
  };
  using Key = std::tuple<std::string, Dtype, int>;
  static Key key_of(const OpShape& shape, int threads) { return {shape.kind, shape.dtype, threads}; }
  static std::array<double, kFeatures> features(const OpShape& shape, double resident_bytes);
  static double reference_us(const Kind& kind, const OpShape& shape);

  std::vector<OpTime> times_;
  std::map<Key, Kind> kinds_;
};

}  // namespace heddle::cost

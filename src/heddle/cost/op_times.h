// Measured times of ops on a machine, and the times that follow for other sizes.
//
// The sizes that decide an op's time on any device describe it: kind, type, rows, the columns it reads and writes,
// groups (experts), FLOPs and bytes. An op that was not measured takes the nearest ones of its kind, in the
// logarithms of these sizes. Each says what part of the kind's best rate was reached there, and their weighted mean
// is taken (Shepard's inverse distances). So a time scales with FLOPs and bytes between and beyond what was
// measured.
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
  auto operator<=>(const OpShape&) const = default;
};
OpShape shape_of(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows, bool overwrite = false);

struct OpTime {
  OpShape shape;
  int threads = 1;
  double resident_bytes = 0;  // the whole program's: its operands may lie in a cache
  double us = 0;
};

class OpTimes {
 public:
  void add(OpTime time);
  bool empty() const { return times_.empty(); }
  const std::vector<OpTime>& all() const { return times_; }
  /// True if an op of this kind and type was measured with so many threads.
  bool knows(const OpShape& shape, int threads) const;
  /// Time in microseconds. InternalError when it is not known.
  double us(const OpShape& shape, int threads, double resident_bytes) const;

 private:
  using Features = std::array<double, 6>;
  struct Kind {
    double flops_per_us = 0, bytes_per_us = 0;  // the best of any sample
    double least_us = 0;
    std::vector<std::pair<size_t, Features>> samples;  // index of times_
  };
  using Key = std::tuple<std::string, Dtype, int>;
  static Key key_of(const OpShape& shape, int threads) { return {shape.kind, shape.dtype, threads}; }
  static Features features(const OpShape& shape, double resident_bytes);
  static double reference_us(const Kind& kind, const OpShape& shape);

  std::vector<OpTime> times_;
  std::map<Key, Kind> kinds_;
};

}  // namespace heddle::cost

// Relative times of the ways of a product over groups on a device, by the work of a group.
//
// Where all groups are large, every way runs at the device's rate. They differ in launches, the edges of tiles and
// how many weights stay in a cache, which weigh more the less there is to do for a group. So each way has points
// for each kind of op (MFLOP of a group, time over that of grouped). Between them logarithms are interpolated;
// beyond the first and the last the ratio stays.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/cost/op_times.h"
#include "heddle/ir/product_way.h"

namespace heddle::cost {

class WayRates {
 public:
  using Points = std::vector<std::pair<double, double>>;  // by increasing MFLOP

  void set(std::string_view kind, ProductWay way, Points points);
  bool empty() const { return ratios_.empty(); }
  /// Time over that of grouped; 1 where nothing is known.
  double over_grouped(std::string_view kind, ProductWay way, double flops_of_group) const;

  /// "grouped_linear.serial 1 1.6,grouped_linear.serial 10 1.05": kind and way, MFLOP, ratio.
  std::string text() const;
  /// ConfigError, without a place, for anything else. "" is nothing.
  static WayRates parse(const std::string& text);

  bool operator==(const WayRates&) const = default;

 private:
  std::map<std::string, Points> ratios_;  // by kind and way, as `measured_kind` has them
};

/// The name by which a kind's time is known where it goes a way of its own: "grouped_linear.batched"; of grouped
/// the kind's.
std::string measured_kind(std::string_view kind, ProductWay way);

/// Returns rates from ops that were measured at the same sizes each way: medians of those that lie close together.
WayRates measured_ways(const OpTimes& times, Dtype dtype, int threads);

/// A device's ways.
struct ProductWays {
  WayRates rates;
  bool same_bits = true;  // an element is the same sum in the same order in each
  bool operator==(const ProductWays&) const = default;
};

}  // namespace heddle::cost

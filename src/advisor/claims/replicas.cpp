// The gain of replicas of hot experts that UltraEP published, with the choice that a run itself makes. One layer's
// loads are like Zipf's, of the published mean imbalance. The placement for them leaves an imbalance, with which
// the step is estimated.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "advisor/claims/computed.h"
#include "heddle/base/random.h"
#include "heddle/comm/placement/placement.h"

namespace heddle::advisor {

namespace {

constexpr int64_t kLoads = 20;  // drawn ones, of which the mean is taken

/// Rows of one source for each expert, which fall as a power of their place in an order that is drawn.
std::vector<double> falling(const CopiesOfHotExperts& of, double steepness, const RandomKey& key) {
  std::vector<size_t> place(static_cast<size_t>(of.experts));
  std::iota(place.begin(), place.end(), size_t{0});
  for (size_t i = place.size(); i-- > 1;) std::swap(place[i], place[key.bits(i) % (i + 1)]);
  std::vector<double> share;
  for (const size_t p : place) share.push_back(std::pow(static_cast<double>(p + 1), -steepness));
  return share;
}

double imbalance_of(const std::vector<int64_t>& rows_H) {
  const auto all = static_cast<double>(std::accumulate(rows_H.begin(), rows_H.end(), int64_t{0}));
  return static_cast<double>(*std::max_element(rows_H.begin(), rows_H.end())) * static_cast<double>(rows_H.size()) /
         all;
}

}  // namespace

double imbalance_with_replicas(const CopiesOfHotExperts& of) {
  comm::Holders holders{.replicas = of.replicas};
  for (int64_t r = 0; r < of.ranks; ++r) holders.node_of.push_back(static_cast<int>(r / of.ranks_on_node));
  const double flops = 6.0 * static_cast<double>(of.hidden * of.width);  // for a row, forward
  const auto ps = [](double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e12)); };
  const double row_bytes = 4.0 * 2 * static_cast<double>(of.hidden),
               copy_bytes = 24.0 * static_cast<double>(of.hidden * of.width);
  const comm::PlacementRules rules{.costs = {.row_ps = ps(3 * flops / of.flops_per_s),
                                             .row_within_ps = ps(row_bytes / of.within_bytes_per_s),
                                             .row_across_ps = ps(row_bytes / of.across_bytes_per_s),
                                             .replica_within_ps = ps(copy_bytes / of.within_bytes_per_s),
                                             .replica_across_ps = ps(copy_bytes / of.across_bytes_per_s)}};
  double sum = 0;
  for (int64_t i = 0; i < kLoads; ++i) {
    const RandomKey key = RandomKey(1).with("hot experts").with(static_cast<uint64_t>(i));
    std::vector<int32_t> rows_SE;
    const auto loads = [&](double steepness) {
      rows_SE = comm::alike_sources(falling(of, steepness, key), of.ranks, of.rows);
      return comm::Loads{of.ranks, of.experts, rows_SE};
    };
    double low = 0, high = 4;
    for (int step = 0; step < 30; ++step) {
      const double middle = (low + high) / 2;
      const comm::Loads drawn = loads(middle);
      (imbalance_of(comm::Placement(holders, of.experts).rows_of(drawn)) < of.imbalance ? low : high) = middle;
    }
    const comm::Loads drawn = loads(high);
    sum += imbalance_of(comm::choose_placement(drawn, holders, rules).rows_of(drawn));
  }
  return sum / static_cast<double>(kLoads);
}

}  // namespace heddle::advisor

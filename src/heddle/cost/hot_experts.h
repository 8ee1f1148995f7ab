// What copies of hot experts leave of an uneven load, without the load: a closed form of comm/placement for ranks
// of whom only the fullest is known.
//
// The ranks' loads are taken as the quantiles of a normal distribution whose fullest of so many has the given
// imbalance, and lie on nodes as if shuffled; a rank's experts have as many rows each. Ranks above a peak shed rows
// to ranks below it that have a free slot, for the peaks that a run tries. tests/planner/hot_experts_test.cpp holds
// this to the placement of drawn loads.
#pragma once

#include <cstdint>
#include <vector>

namespace heddle::cost {

/// Experts of a layer, over `ranks` of which `on_node` share a node, each with slots for so many copies. Without
/// them the fullest rank has `imbalance` times the mean.
struct HotExperts {
  int64_t experts = 1;
  int ranks = 1, on_node = 1, copies = 0;
  double imbalance = 1;
};

/// Seconds of a microbatch, forward and backward together, on the links of a rank within its node and of a node to
/// others.
struct CopySeconds {
  double products = 0;                      // of an even share of rows
  double crossings = 0;                     // of the same rows, there and back
  double copy_within = 0, copy_across = 0;  // of one copy: its weights come twice, its gradient goes once
};

struct Evened {
  double imbalance = 1;  // that is left
  double awaited_s = 0;  // longer that a microbatch takes for its copies
  double sent_s = 0;     // of the busiest link, hidden or not
  double copies = 0;     // of a rank, on the average
};

/// With `by_cost` copies are made where they save time (moe.replicas = "auto"), else wherever they lower the
/// fullest rank. Microseconds, but for the first question about a load, which takes up to some milliseconds. Any
/// thread may ask.
Evened evened(const HotExperts& of, const CopySeconds& seconds, bool by_cost);

}  // namespace heddle::cost

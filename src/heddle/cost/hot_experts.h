// Imbalance that replicas of hot experts leave of an uneven load, without the load itself. It is a closed form of
// comm/placement for ranks of whom only the fullest is known.
//
// The ranks' loads are the quantiles of a normal distribution whose fullest of so many has the given imbalance, and
// lie on nodes as if shuffled. A rank's experts have as many rows each. Ranks above a peak shed rows to ranks below
// it that have a free slot, for the peaks that a run tries. The test `tests/planner/hot_experts_test.cpp` compares
// this with the placement of drawn loads.
#pragma once

#include <cstdint>
#include <vector>

namespace heddle::cost {

/// Experts of a layer, over `ranks` of which `on_node` share a node, each with slots for so many copies. Without
/// them the fullest rank has `imbalance` times the mean.
struct HotExperts {
  int64_t experts = 1;
  int ranks = 1, on_node = 1, replicas = 0;
  double imbalance = 1;
};

/// Seconds of a microbatch, forward and backward together, on the links of a rank within its node and of a node to
/// others.
struct CopySeconds {
  double products = 0;                            // time of an even share of rows
  double crossings = 0;                           // time of the same rows, there and back
  double replica_within = 0, replica_across = 0;  // time of one copy: weights twice, gradient once
};

struct Evened {
  double imbalance = 1;  // the imbalance left
  double awaited_s = 0;  // longer that a microbatch takes for its copies
  double sent_s = 0;     // the busiest link's, hidden or not
  double replicas = 0;   // a rank's, on the average
};

/// Evens the load. With `by_cost` copies are made where they save time (moe.replicas = "auto"), else wherever they
/// lower the fullest rank. It takes microseconds, but for the first question about a load, which takes up to some
/// milliseconds. Any thread may ask.
Evened evened(const HotExperts& of, const CopySeconds& seconds, bool by_cost);

}  // namespace heddle::cost

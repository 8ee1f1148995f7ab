// How rows reach their experts on other ranks, and the rates that choose among the ways:
// docs/features/moe_exchange.md.
#pragma once

#include "heddle/ir/topology_words.h"

namespace heddle::model {

struct Dispatcher {
  ir::Topology topology = ir::Topology::plain;
  double within_rate = 10, within_latency_us = 5;  // of a rank, to others of its node: GB/s
  double across_rate = 1, across_latency_us = 20;  // of a node, to others: GB/s
  int replicas = 0;  // slots of a rank for copies of other ranks' experts; kReplicasByCost
  double within_bytes_per_us() const { return within_rate * kBytesPerUs; }
  double across_bytes_per_us() const { return across_rate * kBytesPerUs; }
  bool operator==(const Dispatcher&) const = default;

  /// Copies where they pay by these rates, in as many slots as usual; a number of slots is used wherever it evens
  /// out the load.
  static constexpr int kReplicasByCost = -1, kUsualCopies = 2;
  int copies() const { return replicas == kReplicasByCost ? kUsualCopies : replicas; }

  static constexpr double kBytesPerUs = 1000;  // of 1 GB/s
};

}  // namespace heddle::model

// How rows reach their experts on other ranks, and the rates that choose among the ways:
// docs/features/moe_exchange.md.
#pragma once

#include "heddle/ir/topology_words.h"

namespace heddle::model {

struct Dispatcher {
  ir::Topology topology = ir::Topology::plain;
  double within_rate = 10, within_latency_us = 5;  // of a rank, to others of its node: GB/s
  double across_rate = 1, across_latency_us = 20;  // of a node, to others: GB/s
  double within_bytes_per_us() const { return within_rate * kBytesPerUs; }
  double across_bytes_per_us() const { return across_rate * kBytesPerUs; }
  bool operator==(const Dispatcher&) const = default;

  static constexpr double kBytesPerUs = 1000;  // of 1 GB/s
};

}  // namespace heddle::model

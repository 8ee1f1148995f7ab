// How rows reach their experts on other ranks, and the rates that choose among the ways:
// docs/features/moe_exchange.md.
#pragma once

#include <string>

namespace heddle::model {

struct Exchange {
  std::string topology = "plain";  // plain, rank, node, merge; auto weighs them by these rates
  double within_bytes_per_us = 10000, within_latency_us = 5;  // of a rank, to others of its node
  double across_bytes_per_us = 1000, across_latency_us = 20;  // of a node, to others
};

}  // namespace heddle::model

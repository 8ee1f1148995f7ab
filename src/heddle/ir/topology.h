// The way in which rows reach their experts on other ranks: the attribute `topology` of the exchange's ops, by its
// word (ir/topology_words.h). The routes of a running step say the same (device/exchange_work.h), where `automatic`
// has become one of the others. docs/features/moe_exchange.md compares them. Device code reads this header.
#pragma once

#include <cstdint>

namespace heddle::ir {

enum class Topology : int32_t {
  plain,      // every (token, expert) by itself
  rank,       // once a rank, with the list of its experts there
  node,       // once a node, to one rank of it, which hands it to the others
  merge,      // all rows to every node, to one rank of it, which hands on what is chosen
  automatic,  // whichever of these is cheapest once the counts are known
};

}  // namespace heddle::ir

// The names of the topologies of the experts' exchange in attributes and configurations.
#pragma once

#include "heddle/base/words.h"
#include "heddle/ir/topology.h"

namespace heddle::ir {

constexpr auto words_of(Topology) {
  return std::to_array<Word<Topology>>({{Topology::plain, "plain"},
                                        {Topology::rank, "rank"},
                                        {Topology::node, "node"},
                                        {Topology::merge, "merge"},
                                        {Topology::automatic, "auto"}});
}

}  // namespace heddle::ir

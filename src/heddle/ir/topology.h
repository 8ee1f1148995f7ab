// How rows reach their experts on other ranks: the attribute `topology` of the exchange's ops, by its word. The
// routes of a running step know the same (device/exchange_work.h), where `automatic` has become one of the others.
#pragma once

#include "heddle/base/words.h"

namespace heddle::ir {

enum class Topology : int32_t { plain, rank, node, merge, automatic };

constexpr auto words_of(Topology) {
  return std::to_array<Word<Topology>>({{Topology::plain, "plain"},
                                        {Topology::rank, "rank"},
                                        {Topology::node, "node"},
                                        {Topology::merge, "merge"},
                                        {Topology::automatic, "auto"}});
}

}  // namespace heddle::ir

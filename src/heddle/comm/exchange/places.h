// The places of a group's ranks, as the exchanges of experts' rows see them: nodes of the group, slots on a node,
// and who takes in a node's rows.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "heddle/comm/communicator.h"
#include "heddle/device/routing_plan.h"

namespace heddle::comm {

struct Places {
  explicit Places(const Communicator& of) : Places(of.rank(), nodes_of(of)) {}
  /// `node_of`: the world's node of each rank of the group.
  Places(int self, const std::vector<int>& node_of) : self(self) {
    std::vector<int> numbers;  // of the world's nodes, in order of first rank in the group
    for (int r = 0; r < static_cast<int>(node_of.size()); ++r) {
      const int world_node = node_of[r];
      size_t n = 0;
      while (n < numbers.size() && numbers[n] != world_node) ++n;
      if (n == numbers.size()) {
        numbers.push_back(world_node);
        members.emplace_back();
      }
      node.push_back(static_cast<int>(n));
      slot.push_back(static_cast<int>(members[n].size()));
      members[n].push_back(r);
    }
    size_t most = 1;
    for (const auto& ranks : members) most = std::max(most, ranks.size());
    slots = static_cast<int64_t>(std::bit_ceil(most));
  }

  int nodes() const { return static_cast<int>(members.size()); }
  int own_node() const { return node[self]; }
  /// The rank of `to` that takes in what rank `source` sends to that node: the one in its slot, or with fewer ranks
  /// there, spread over them. On the own node, the source itself.
  int gate_of(int source, int to) const {
    const std::vector<int>& ranks = members[to];
    return ranks[static_cast<size_t>(slot[source]) % ranks.size()];
  }
  /// The sources for which `rank` takes in rows, increasing.
  std::vector<int> sources_of(int rank) const {
    std::vector<int> sources;
    for (int s = 0; s < static_cast<int>(node.size()); ++s) {
      if (gate_of(s, node[rank]) == rank) sources.push_back(s);
    }
    return sources;
  }
  /// The key of a rank's sum among those of its node, and of all: see device/merge_tree.h.
  int64_t key_of(int rank) const { return node[rank] * slots + slot[rank]; }

  int self;
  std::vector<int> node, slot;            // of each rank
  std::vector<std::vector<int>> members;  // of each node
  int64_t slots = 1;                      // a power of two that no node exceeds

 private:
  static std::vector<int> nodes_of(const Communicator& of) {
    std::vector<int> nodes;
    for (int r = 0; r < of.size(); ++r) nodes.push_back(of.node_of(r));
    return nodes;
  }
};

}  // namespace heddle::comm

// The way in which rows reach their experts on other ranks, and the rates that choose among the ways:
// docs/features/moe_exchange.md.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "heddle/base/words.h"
#include "heddle/ir/topology_words.h"

namespace heddle::model {

/// The source of the knowledge which experts are hot.
enum class ReplicasFrom : uint8_t {
  counts,   // of this microbatch and layer, once its router has chosen
  history,  // of the last steps: copies come before the router has chosen
};
constexpr auto words_of(ReplicasFrom) {
  return std::to_array<Word<ReplicasFrom>>({{ReplicasFrom::counts, "counts"}, {ReplicasFrom::history, "history"}});
}

struct Dispatcher {
  ir::Topology topology = ir::Topology::plain;
  double within_rate = 10, within_latency_us = 5;  // of a rank, to others of its node: GB/s
  double across_rate = 1, across_latency_us = 20;  // of a node, to others: GB/s
  int replicas = 0;  // slots of a rank for copies of other ranks' experts; kReplicasByCost
  ReplicasFrom replicas_from = ReplicasFrom::counts;
  int migrate_every = 0;  // steps between looks at whether experts change their homes for good; 0: never
  /// Rows of an expert over the even share, of one rank's microbatch; 0: as many as come.
  double capacity_factor = 0;
  /// Rows that a rank has room for, over the even share; 0: the host waits for the counts and makes room for these.
  double room_factor = 0;
  bool second_round =
      true;  // rows that find no room are taken by a second round of the step; else they end the run
  double within_bytes_per_us() const { return within_rate * kBytesPerUs; }
  double across_bytes_per_us() const { return across_rate * kBytesPerUs; }
  bool operator==(const Dispatcher&) const = default;

  /// Copies where they pay by these rates, in as many slots as usual; a number of slots is used wherever it evens
  /// out the load.
  static constexpr int kReplicasByCost = -1, kUsualReplicas = 2;
  int replica_slots() const { return replicas == kReplicasByCost ? kUsualReplicas : replicas; }
  bool recalls() const { return replica_slots() > 0 && replicas_from == ReplicasFrom::history; }
  bool migrates() const { return migrate_every > 0; }

  /// Places of an expert for one rank's `tokens`, no more than there are tokens; 0 without a capacity.
  int64_t places(int64_t tokens, int64_t top_k, int64_t experts) const {
    if (capacity_factor <= 0) return 0;
    const double even = static_cast<double>(tokens * top_k) / static_cast<double>(experts);
    return std::clamp(static_cast<int64_t>(std::ceil(capacity_factor * even * (1 - kRounding))), int64_t{1},
                      tokens);
  }

  /// The most rows that one rank sends to one holder of experts, of which `each` are there.
  static int64_t whole_room(int64_t tokens, int64_t top_k, int64_t each) { return tokens * std::min(top_k, each); }
  /// The room for them: no more than can come.
  int64_t room(int64_t tokens, int64_t top_k, int64_t holders, int64_t each) const {
    if (room_factor <= 0) return 0;
    const double even = static_cast<double>(tokens * top_k) / static_cast<double>(holders);
    return std::clamp(static_cast<int64_t>(std::ceil(room_factor * even * (1 - kRounding))), int64_t{1},
                      whole_room(tokens, top_k, each));
  }

  static constexpr double kRounding = 1e-9;    // of a factor, which is a decimal
  static constexpr double kBytesPerUs = 1000;  // of 1 GB/s
};

}  // namespace heddle::model

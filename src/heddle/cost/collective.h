// Time of collectives from group size, place and bytes: the fast domain first, then the scale-out network.
//
// A group is `size` ranks whose neighbours stand `stride` global ranks apart, so that min(size, domain / stride) of
// them share a domain. Rings over both tiers are bound by the slower one: inside a domain the devices' links work
// for several groups at once, outside it each device drives its own NIC.
//
// A domain without a switch gives a group less than its links' rate. Fully connected, a group has only the links
// among itself. On a mesh a ring's ends lie on an edge, and an all-to-all has to cross the middle.
#pragma once

#include "heddle/cost/accelerator.h"

namespace heddle::cost {

struct Group {
  int size = 1;
  int stride = 1;
};

/// Parts of its rated figures that a network reaches.
struct NetworkEfficiency {
  double inner = 0.9;  // part of the domain's link rate, large messages
  double send = 0.95;  // part of the NIC rate, one message to one neighbour
  double outer = 0.5;  // part of the NIC rate
  /// Part of the NIC rate in an exchange that crosses to a node once, by kernels made for it (DeepEP's README: 43
  /// to 58 GB/s of 50 for 16 to 64 ranks).
  double exchange = 0.8;
};

/// Ranks of the group in one fast domain.
int ranks_inside(const Accelerator& device, Group group);

/// All-gather or reduce-scatter where the whole result (or source) has `bytes`; seconds.
double gather_s(const Accelerator& device, const NetworkEfficiency& net, Group group, double bytes);

/// All-reduce of `bytes`.
double all_reduce_s(const Accelerator& device, const NetworkEfficiency& net, Group group, double bytes);

/// Send of `bytes` to the rank `stride` away.
double send_s(const Accelerator& device, const NetworkEfficiency& net, int stride, double bytes);

/// A hop round a ring: each rank of the group sends `bytes` to the next. Where the ring leaves a domain, one
/// device's own link there carries what all wait for.
double hop_s(const Accelerator& device, const NetworkEfficiency& net, Group group, double bytes);

/// All-to-all in which each rank holds `bytes` for the group, evenly spread.
double all_to_all_s(const Accelerator& device, const NetworkEfficiency& net, Group group, double bytes);

/// One way of the experts' exchange. Each rank sends `tokens` rows of `row_bytes`, each to `chosen` experts spread
/// evenly over the group; at most `most_nodes` nodes a token when > 0. With `once_a_node` a row crosses to a node
/// once however many of its experts stand there (DeepEP, HybridEP), and is forwarded inside.
struct ExchangeLoad {
  double tokens = 0;
  double row_bytes = 0;
  int chosen = 1;
  int most_nodes = 0;
  bool once_a_node = false;
};
double exchange_s(const Accelerator& device, const NetworkEfficiency& net, Group group,
                  const ExchangeLoad& exchange);

}  // namespace heddle::cost

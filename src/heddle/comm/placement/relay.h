// The way of replicas' weights to their holders. An owner hands a node each of its experts once, in as many parts
// as holders there have a replica, and these hand their parts to each other. So the owner's link carries an expert
// once a node, however many replicas there are. With one holder on a node its replica comes whole.
#pragma once

#include <vector>

#include "heddle/comm/placement/placement.h"

namespace heddle::comm {

/// `from` hands part number `part` of `parts` of an expert's weights to `to`, all holders.
struct Handover {
  int64_t expert = 0, from = 0, to = 0, part = 0, parts = 1;
  bool relayed = false;  // by a holder, in the second round
};

/// In which slot is which expert, as Placement::expert_of_slot; the same order on every rank.
std::vector<Handover> handovers(std::span<const int32_t> expert_of_slot, const Holders& holders);

/// Bytes of such a part: where they begin, and how many there are.
struct PartBytes {
  int64_t offset = 0, bytes = 0;
};
PartBytes part_of(int64_t bytes, int64_t part, int64_t parts);

}  // namespace heddle::comm

// Weights that lie on the host: a copy of each is on the device while a block of the schedule uses it.
//
// Weights don't change within a step, so they only come in. Ahead of the first op of a block (F of a chunk, I with
// W, or each of them where the schedule runs them apart) that reads one stands a copy_in, as late as it may
// (passes/host/link_times), and its place is free after the last. Where a microbatch's I always follows its F at
// once and the weight would hardly be gone before it had to come again, one copy serves both. What writes weights,
// at the end of a step or at the beginning of the next, writes to a place on the device of its own, from where a
// copy_out takes them to the host. Packed weights move as they are packed.
#pragma once

#include <map>
#include <vector>

#include "heddle/passes/host/home_words.h"
#include "heddle/passes/weave.h"

namespace heddle::passes {

/// In what order a pipeline rank runs its blocks.
struct BlockOrder {
  bool deferred = false;      // I and W of a microbatch apart
  std::vector<bool> at_once;  // of each chunk: I of a microbatch always follows its F at once
};

/// After `update`, on any listing: of a training listing moves these weights to the host first; another has weights
/// on the host that it shares with one. Lossless.
void host_weights(ir::Listing& listing, const std::map<ir::ValueId, Home>& homes, const BlockOrder& order,
                  const Durations& duration_us);

}  // namespace heddle::passes

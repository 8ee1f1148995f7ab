// Weights that lie on the host: a copy of each is on the device while a block of the schedule uses it.
//
// Ahead of the first op of a block that reads a weight stands a copy_in (passes/host/bring_weights). An op that
// writes weights, at the end of a step or at the beginning of the next, writes to a place of its own on the device.
// From there a copy_out takes them to the host. Packed weights move as they are packed.
#pragma once

#include <map>

#include "heddle/passes/host/bring_weights.h"
#include "heddle/passes/host/residency_words.h"

namespace heddle::passes {

/// After `update`, on any listing: of a training listing moves these weights to the host first; another has weights
/// on the host that it shares with one. Lossless.
void host_weights(ir::Listing& listing, const std::map<ir::ValueId, Residency>& residencies,
                  const BlockOrder& order, const Durations& duration_us);

}  // namespace heddle::passes

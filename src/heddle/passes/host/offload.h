// Offload: activations that only the backward still needs wait for it on the host.
//
// Values are chosen by the op that makes them and by layer, as for recompute. The word "input" stands for what a
// layer hands to the next. After the last op of F that reads such a value comes a copy_out, and its place on the
// device is free. Ahead of the first op of I that reads it comes a copy_in (in W, where only W reads it, or where
// the schedule runs W apart). Copies have streams of their own, one each way, so nothing waits unless a copy is
// late.
//
// A copy_in stands as late as it may (passes/host/link_times), one action of the schedule ahead at most, where some
// action stands between a microbatch's forward and its backward. A value that could not be back in time even so, or
// could not leave as fast as it is made, stays on the device. The bandwidth decides how much of what was chosen
// goes.
#pragma once

#include <vector>

#include "heddle/passes/op_groups.h"
#include "heddle/passes/weave.h"

namespace heddle::passes {

constexpr const char* kLayerInput = "input";  // the word that offload knows besides group_words()

/// The words that the switch memory.offload takes.
std::vector<std::string> offload_words();
std::vector<OpGroup> offload_groups(std::string_view text);

/// On a differentiated listing, after recompute. `deferred`: its schedule runs I and W of a microbatch apart.
/// `apart`, of each chunk: in the schedule, some action always stands between a microbatch's F and its I. Lossless:
/// the backward reads the bytes that the forward made.
void offload(ir::Listing& listing, const std::vector<OpGroup>& groups, bool deferred,
             const std::vector<bool>& apart, const Durations& duration_us);

}  // namespace heddle::passes

// A copy of what a training step changes and a run needs to go on: masters, moments and biases, in memory that
// outlives the process.
//
// State changes at the end of a step alone, so a copy that is begun before a step runs beside its forward and
// backward. Nothing waits for it but the update of what is not copied yet. Each value has two places, "NAME.snap"
// and "NAME.snap.before", which `flip` lets take turns: while one is written the other is whole. Beside each stand
// the checksums of its chunks (base/files/chunk_sums), taken from the source. The host's processor copies what lies
// on the host there.
#pragma once

#include "heddle/model/text/rank_text.h"

namespace heddle::passes {

/// The suffixes of a value's two places and of their checksums.
inline constexpr const char *kSnap = ".snap", *kSnapBefore = ".snap.before", *kSums = ".snap.sums",
                            *kSumsBefore = ".snap.sums.before";

/// A listing of its own that copies the state of `text`, listing number `index` of its program, after all passes
/// that say where state lies. The step's end does not wait for its ops.
ir::Listing snapshot_listing(const model::RankText& text, int index);

}  // namespace heddle::passes

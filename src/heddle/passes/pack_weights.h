// Weights that matrix products read are kept in the backend's own blocking across microbatches, made anew from the
// master at the end of each step.
#pragma once

#include <functional>

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// Marks as packed every weight of two or three dims whose readers are all matrix products. `packed_bytes` gives
/// the backend's size for it, 0 to leave it in rows. Run before `update`, which then adds the packing itself.
void pack_weights(ir::Listing& listing, const std::function<int64_t(const ir::Value&)>& packed_bytes);

}  // namespace heddle::passes

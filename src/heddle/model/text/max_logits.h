// The largest attention logit of each head over the step, by which heads are clipped (train.qk_clip).
#pragma once

#include <vector>

#include "heddle/model/text/attend.h"

namespace heddle::model {

/// Keeps them for what an attention has made. Without train.qk_clip, or where the listing does not train, it writes
/// nothing. `keys`: of whole sequences, or of each turn of the ring. `chosen`: the keys of each row, or none.
void keep_max_logits(Writer& writer, ir::ValueId q, const std::vector<ir::ValueId>& keys, ir::ValueId lse,
                     const HeadSizes& sizes, ir::ValueId chosen = ir::none);

}  // namespace heddle::model

// One layer of a decoder: attention and feed-forward, each behind a norm and added to the residual stream.
#pragma once

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// Writes layer `index`; what follows belongs to it.
ir::ValueId decoder_layer(Writer& writer, int64_t index, ir::ValueId x_TH);

}  // namespace heddle::model

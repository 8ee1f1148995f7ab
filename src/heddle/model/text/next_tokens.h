// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): the module of depth d, which predicts the
// token d + 1 after each position. Its layer comes after those of the model.
#pragma once

#include "heddle/model/text/ends.h"
#include "heddle/model/text/writer.h"

namespace heddle::model {

/// The norm of the states of the depth before.
ir::ValueId depth_input(Writer& writer, int64_t depth, ir::ValueId h_TH);
/// The module itself, from those normed states and the next token's embedding.
ir::ValueId depth_states(Writer& writer, Ends& ends, int64_t depth, ir::ValueId normed_TH);
/// The loss of a depth's states; depth 0 is the model itself: the next token.
void predict_depth(Writer& writer, Ends& ends, int64_t depth, ir::ValueId h_TH);

}  // namespace heddle::model

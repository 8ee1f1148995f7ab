// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): the module of depth d, which predicts the
// token d + 1 after each position. Its layer comes after those of the model.
#pragma once

#include "heddle/model/text/ends.h"
#include "heddle/model/text/writer.h"

namespace heddle::model {

/// Returns a depth's states behind the norm of its head, or as they are (Writer::hands_on_normed). The next depth
/// and the head read them. Depth 0 is the model itself.
ir::ValueId handed_on(Writer& writer, int64_t depth, ir::ValueId h);
/// The norm of what the depth before hands on, of each stream by itself.
ir::ValueId depth_input(Writer& writer, int64_t depth, ir::ValueId h);
/// The module itself, from those normed states and the next token's embedding. Returns what it hands on.
ir::ValueId depth_states(Writer& writer, Ends& ends, int64_t depth, ir::ValueId normed);
/// The loss of what a depth hands on; of depth 0: the next token.
void predict_depth(Writer& writer, Ends& ends, int64_t depth, ir::ValueId h);

}  // namespace heddle::model

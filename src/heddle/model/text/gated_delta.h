// The gated delta rule instead of attention (Yang et al., arXiv 2412.06464), as Qwen3-Next has it. A projection
// makes queries, keys, values and gates of the output. A short causal convolution passes over the first three, and
// the recurrence follows (ops/recurrence.cpp). Each head's output is normed and multiplied by silu(gate).
//
// Heads are cut among tp and cp as recurrent_heads.h says.
#pragma once

#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// [T, H] to [T, H]; `prefix` stands before the names of the layer's parameters.
ir::ValueId gated_delta(Writer& writer, ir::ValueId n_TH, const std::string& prefix);

}  // namespace heddle::model

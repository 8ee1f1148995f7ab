// Kimi Delta Attention instead of attention (Kimi Linear, arXiv 2510.26692): the delta rule with a decay of its own
// for each channel of a key. Queries, keys and values pass through a short causal convolution. Two maps with a
// narrow middle, as wide as a head, make the decay, and two the gate of the output; in Ling 3 one map each. Each
// head's output is normed and multiplied by σ(gate).
//
// Heads are cut among tp and cp as recurrent_heads.h says. The narrow middles are whole on every rank of tp.
#pragma once

#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// [T, H] to [T, H]; `prefix` stands before the names of the layer's parameters.
ir::ValueId kimi_delta(Writer& writer, ir::ValueId n_TH, const std::string& prefix);

}  // namespace heddle::model

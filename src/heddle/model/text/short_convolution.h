// A gated short convolution instead of attention, as LFM2 has it (arXiv 2511.23404). A row makes three as wide as
// itself, b, c and x, and a causal convolution of few rows passes over b·x:
//   o = W_out (c · conv(b · x))
// There is no state beside the last rows ahead of the convolution.
//
// Channels are cut among tp and cp as recurrent_heads.h says of heads.
#pragma once

#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// [T, H] to [T, H]; `prefix` stands before the names of the layer's parameters.
ir::ValueId short_convolution(Writer& writer, ir::ValueId n_TH, const std::string& prefix);

}  // namespace heddle::model

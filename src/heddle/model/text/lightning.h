// Lightning attention instead of attention (Qin et al., arXiv 2401.04658), as MiniMax-01 has it (arXiv
// 2501.08313). It is linear attention whose state decays by a constant, a number a head. The deeper the layer lies,
// the slower it decays. One projection makes queries, keys and values, which pass through silu. The outputs of all
// heads are normed as one row and multiplied by σ(gate).
//
// Heads are cut among tp and cp as recurrent_heads.h says.
#pragma once

#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// [T, H] to [T, H]; `prefix` stands before the names of the layer's parameters.
ir::ValueId lightning(Writer& writer, ir::ValueId n_TH, const std::string& prefix);

}  // namespace heddle::model

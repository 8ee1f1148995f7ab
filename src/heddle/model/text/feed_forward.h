// An MLP: down(silu(gate(x)) · up(x)). Its middle may be clamped SwiGLU (the released code of GPT-OSS) or GeGLU.
// Without a gate it is down(gelu(up(x))) or down(max(up(x), 0)²).
#pragma once

#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// The MLP of a dense layer or of the shared experts (`part` mlp or shared); its width is cut among tp.
ir::ValueId feed_forward(Writer& writer, ir::ValueId x_TH, const std::string& prefix, int64_t width,
                         const std::string& name, OpPart part);

/// silu(gate)·up of rows gate | up, in its parts, which the pass `fuse` makes one op; or clamped; or gelu(gate)·up.
/// Rows without a gate: gelu or max(·, 0)². `limit`: silu(gate) is cut above it, up within ± it; 0: neither. The
/// gate is multiplied by `factor` first.
ir::ValueId activation(Writer& writer, ir::ValueId u, double limit, const std::string& name, double factor = 1);

/// Returns silu, gelu or max(·, 0)² of x, as the model's gates have it, or its rows without a gate.
ir::ValueId gate_function(Writer& writer, ir::ValueId x, const std::string& name);

}  // namespace heddle::model

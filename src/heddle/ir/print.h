// The text form of stages, blocks and actions: one op a line, stable, the stream at the end.
#pragma once

#include <string>

#include "heddle/ir/program.h"

namespace heddle::ir {

/// "bf16[2048, 256]", dynamic dims as "rows n".
std::string text_of(const Stage& stage, const Value& value);
/// "y, rstd = rms_norm x, w {epsilon 1e-06}  compute"
std::string text_of(const Stage& stage, const Op& op);
std::string text_of(const Stage& stage);
std::string text_of(const StepProgram& program);

}  // namespace heddle::ir

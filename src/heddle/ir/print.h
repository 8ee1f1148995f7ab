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
/// The training actions of a rank about the one that holds this op of this microbatch, which stands between > and
/// <: "… F0.4 >F0.5|IW0.2< IW0.3 …". "" when there is none.
std::string text_around(const StepProgram& program, int rank, int stage, uint32_t op, int microbatch);

}  // namespace heddle::ir

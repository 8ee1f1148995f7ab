// Finds the op that makes a rank slow, by its ops' times beside those of ranks that do the same. One op, or the ops
// of one kind, is blamed if it takes most of the time that the rank works longer, and the rest takes hardly longer
// than elsewhere. Else all are slow alike, and the processor is blamed.
#pragma once

#include <optional>
#include <string>

#include "heddle/ir/program.h"
#include "heddle/session/ranks/slow_ranks.h"
#include "heddle/session/slow/op_times.h"

namespace heddle::session {

struct SlowOp {
  enum class Scope : uint8_t { one, kind, all };
  Scope scope = Scope::all;
  int32_t listing = 0;  // the one op, or the one that takes most time too long
  uint32_t op = 0;
  double share = 0;     // its share of the time that the rank works longer
  double excess_s = 0;  // a step
  double times = 1;     // over elsewhere
};

std::string_view name_of(SlowOp::Scope scope);

/// None where nothing takes longer. `others`: of ranks that do the same.
std::optional<SlowOp> slow_op(const ir::StepProgram& program, WorkKind kind, const OpTimes& own,
                              const std::vector<const OpTimes*>& others);

/// "linear 1.q_proj": the op by its kind and what it makes or updates.
std::string label_of(const ir::Listing& listing, const ir::Op& op);
/// "linear 1.q_proj (phase F), 2.1 times", "attention in 4 ops (phase F), …" or "all of its ops".
std::string text_of(const SlowOp& slow, const ir::StepProgram& program);

}  // namespace heddle::session

// Lowers a schedule to the actions of a step program. These are blocks for what the schedule computes, receives
// before them, the beginning of the step woven with the first forwards, and its end.
#pragma once

#include <functional>

#include "heddle/ir/program.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

struct Lowering {
  int first_listing = 0;  // that of pipeline rank r is first_listing + r; its beginning that of listing r
  /// True if these are the training stages, which come first and hold the weights.
  bool trains() const { return first_listing == 0; }
  /// True if action i of a rank follows the one before it at once, without waiting for another rank. Then the
  /// weight gradients of that one may fill gaps here. Null: none does.
  std::function<bool(int rank, size_t action)> at_once;
};

/// Adds to `program` the blocks that the schedule needs, and to `actions` a list for each of its ranks. Chunk c of
/// a rank's stage is the c-th of its pipeline stages; chunks without ops do nothing. Between two ranks, what goes
/// one way (activations or gradients) is received in the order in which it is sent.
void lower(ir::StepProgram& program, ir::StepProgram::ActionLists& actions, const Schedule& schedule,
           const Lowering& lowering = {});

}  // namespace heddle::schedule

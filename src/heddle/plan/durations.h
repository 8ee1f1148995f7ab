// What the ops of a plan are taken to last when blocks are woven: the same on every rank, so that all ranks of a
// group come to the same order. Only their relations matter.
#pragma once

#include "heddle/model/deepseek_v3.h"
#include "heddle/passes/weave.h"

namespace heddle::plan {

/// Arithmetic at a nominal rate, what else there is by its bytes, messages by the exchange's links, with as many
/// rows for each rank's experts.
passes::Durations nominal_durations(const model::Exchange& links);

}  // namespace heddle::plan

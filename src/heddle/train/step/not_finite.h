// The source of a loss or a gradient that is not finite.
#pragma once

#include <string>

#include "heddle/plan/plan.h"
#include "heddle/runtime/executor.h"
#include "heddle/train/rank_exchange.h"

namespace heddle::train {

/// Runs the step again, one op at a time, and says which value of the whole job was the first that was not finite:
/// "'3.logits' of linear in layer 3 (phase F, microbatch 0, rank 2)". Causes come before effects, on whichever
/// rank. All ranks call it together.
std::string first_not_finite(runtime::Executor& executor, const plan::Lowered& lowered, RankExchange& ranks,
                             const device::Inputs& inputs);

}  // namespace heddle::train

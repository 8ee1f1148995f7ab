// Orders that nobody would choose: whatever can run next, on whichever rank, at random. Every valid schedule must
// give the same gradients.
#pragma once

#include <array>
#include <functional>

#include "heddle/schedule/schedule.h"

namespace heddle::parity {

/// `below(n)` is a random number from 0 to n − 1. Forwards and backwards of a rank that could run at the same time
/// are fused now and then; backwards are split now and then.
schedule::Schedule random_schedule(const schedule::Placement& placement, int microbatches,
                                   const std::function<int(int)>& below);

}  // namespace heddle::parity

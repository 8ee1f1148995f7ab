// What the ops of a plan are taken to last when blocks are woven and values leave for the host: the same on every
// rank, so that all ranks of a group come to the same order. Only their relations matter.
#pragma once

#include "heddle/plan/plan.h"

namespace heddle::plan {

/// Arithmetic and bytes at nominal rates, messages by the exchange's links, with as many rows for each rank's
/// experts.
passes::Durations nominal_durations(const model::Exchange& links, const DeviceRates& rates);

}  // namespace heddle::plan

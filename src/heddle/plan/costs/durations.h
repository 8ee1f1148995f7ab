// The durations assumed for the ops of a plan when blocks are woven and values leave for the host. They are the
// same on every rank, so that all ranks of a group come to the same order. Only their relations matter.
#pragma once

#include "heddle/plan/plan.h"

namespace heddle::plan {

/// Rows that the experts of a rank get when all get as many; 0 where experts are not spread.
int64_t balanced_rows(const ir::Listing& listing);

/// Arithmetic, bytes and messages at these rates, messages without one by the exchange's links, with as many rows
/// for each rank's experts.
passes::Durations nominal_durations(const model::Dispatcher& links, const DeviceRates& rates);

/// The share of its rank's compute units that an op takes while it moves its message (DeviceRates). A collective
/// takes it on each of its ranks, a message on the one that sends it. 0 for an op that moves none.
double units_taken(const ir::Op& op, const DeviceRates& rates);
/// True if an op gets slower by what others take.
bool computes_on_units(const ir::Op& op);

}  // namespace heddle::plan

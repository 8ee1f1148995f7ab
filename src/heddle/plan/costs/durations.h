// What the ops of a plan are taken to last when blocks are woven and values leave for the host: the same on every
// rank, so that all ranks of a group come to the same order. Only their relations matter.
#pragma once

#include "heddle/plan/plan.h"

namespace heddle::plan {

/// Rows that the experts of a rank get when all get as many; 0 where experts are not spread.
int64_t balanced_rows(const ir::Listing& listing);

/// Arithmetic, bytes and messages at these rates, messages without one by the exchange's links, with as many rows
/// for each rank's experts.
passes::Durations nominal_durations(const model::Dispatcher& links, const DeviceRates& rates);

/// Share of its rank's units that compute, which an op takes while it moves its message (DeviceRates): what a
/// collective takes on each of its ranks, and a message on the one that sends it. 0 for all that moves none.
double units_taken(const ir::Op& op, const DeviceRates& rates);
/// Whether an op gets slower by what others take.
bool computes_on_units(const ir::Op& op);

}  // namespace heddle::plan

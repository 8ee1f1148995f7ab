// Paced mode: each op of an executor lasts as long as a table says, asleep.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "heddle/plan/costs/durations.h"
#include "heddle/runtime/executor.h"
#include "tests/support/paced_kernel.h"

namespace heddle {

/// `pace_ns`: least duration of each op, by (listing, op), in nanoseconds; empty switches it off. `message_share`:
/// of the device's units, taken by a message from ops that compute while it is under way (plan::units_taken). Only
/// between steps, on a device of the CPU.
inline void set_pace(runtime::Executor& executor, const std::vector<std::vector<int64_t>>& pace_ns,
                     double message_share = 0) {
  if (pace_ns.empty()) return executor.change_launches(nullptr);
  struct Table {
    std::vector<std::vector<PacedKernel>> of;  // [listing][op]
    std::vector<std::vector<bool>> known;
  };
  const auto table = std::make_shared<Table>();
  const auto units = std::make_shared<PacedUnits>();
  for (const std::vector<int64_t>& listing : pace_ns) {
    table->known.emplace_back(listing.size(), false);
    std::vector<PacedKernel>& kernels = table->of.emplace_back(listing.size());
    for (size_t i = 0; i < listing.size(); ++i) {
      kernels[i].pace_ns = listing[i];
      kernels[i].units = units;
    }
  }
  plan::DeviceRates rates;
  rates.message_share = message_share;
  executor.change_launches([table, rates](device::Launch& launch) {
    const auto listing = static_cast<size_t>(launch.listing);
    PacedKernel& kernel = table->of[listing][launch.op_index];
    if (!table->known[listing][launch.op_index]) {
      const ir::Op& op = *launch.call.op;
      kernel.pace = op.def->collective                         ? Pace::after
                    : op.def->moves == ir::Moves::to_neighbour ? Pace::before
                                                               : Pace::around;
      kernel.takes = plan::units_taken(op, rates);
      kernel.computes = rates.message_share > 0 && plan::computes_on_units(op);
      table->known[listing][launch.op_index] = true;
    }
    kernel.put_around(launch);
  });
}

}  // namespace heddle

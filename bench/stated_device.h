// A device of stated rates for the paced mode: an op takes 100 us, its FLOPs, and 30 FLOPs for a byte that it reads
// or writes; a message takes 50 us, and 100 FLOPs for a byte.
#pragma once

#include <algorithm>
#include <vector>

#include "heddle/plan/plan.h"

namespace heddle::bench {

inline double stated_work(const plan::Plan& plan, const ir::Listing& listing, const ir::Op& op) {
  if (op.def->cost == nullptr) return 0;
  const ir::Cost cost = op.def->cost(listing, op, ir::FixedRows(plan.sequences * plan.sequence_length));
  return op.def->stream == ir::StreamKind::comm ? 100 * cost.message_bytes : cost.flops + 30 * cost.bytes;
}

/// Of the computation of a step, of the rank that has most.
inline double most_work(const plan::Plan& plan, const plan::Lowered& lowered) {
  double most = 0;
  for (int s = 0; s < plan.mesh.pp; ++s) {
    const ir::Listing& listing = lowered.program.listings[static_cast<size_t>(s)];
    double sum = 0;
    for (const ir::Op& op : listing.ops) {
      if (op.def->stream == ir::StreamKind::compute)
        sum += stated_work(plan, listing, op) * (ir::once_a_step(op.phase) ? 1 : plan.microbatches);
    }
    most = std::max(most, sum);
  }
  return most;
}

/// As set_pace takes it. Without `messages` those take what they take.
inline std::vector<std::vector<int64_t>> stated_pace(const plan::Plan& plan, const plan::Lowered& lowered,
                                                     double work_per_s, bool messages) {
  std::vector<std::vector<int64_t>> pace_ns;
  for (const ir::Listing& listing : lowered.program.listings) {
    pace_ns.emplace_back();
    for (const ir::Op& op : listing.ops) {
      const double s = stated_work(plan, listing, op) / work_per_s;
      const bool computes = op.def->stream == ir::StreamKind::compute,
                 sends = op.def->stream == ir::StreamKind::comm;
      pace_ns.back().push_back(computes            ? static_cast<int64_t>(1e5 + 1e9 * s)
                               : sends && messages ? static_cast<int64_t>(5e4 + 1e9 * s)
                                                   : 0);
    }
  }
  return pace_ns;
}

}  // namespace heddle::bench

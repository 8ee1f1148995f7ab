// A rank's step as the walk gives it, written down instead of run: every op with its stream, its waits, its
// duration and the arena's bytes at its issue. The same walk hands the executor its ops, so waits and memory are
// the real ones.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/ir/walk/walk.h"

namespace heddle::simulate {

/// Scratch that the kernel of an op asks for, in bytes.
using ScratchBytes = std::function<int64_t(int listing, uint32_t op, const ir::RowCounts& rows)>;
/// Microseconds that an op takes once everything it needs is there; or how many threads.
using DurationUs = std::function<double(int rank, const ir::Issue& issue)>;
/// Rows that the host reads from an output of an op with a host stall.
using RowsRead = std::function<int64_t(int rank, const ir::Issue& issue, size_t output)>;

/// Time for which the messages of an op itself would keep the links of its rank's host busy, had it them for
/// itself: at most about its duration.
struct LinkUse {
  double out_us = 0, in_us = 0;
};
using LinkUses = std::function<LinkUse(int rank, const ir::Issue& issue)>;

struct RecordedOp {
  int32_t listing = 0;
  uint32_t op = 0;
  int32_t microbatch = 0;
  int32_t stream = 0;
  uint32_t count = 0;       // this op is the count-th of the step on its stream
  uint32_t first_wait = 0;  // its waits, in Recording::waits
  uint32_t waits = 0;
  bool host_stall = false;
  bool overwrite = false;  // the first op of the step that sums into an accumulator
  double duration_us = 0;
  double threads = 0;  // threads that it keeps busy
  double takes = 0;    // share of its rank's units that compute
  LinkUse link;
  int64_t live_bytes = 0;  // after its outputs were placed
  int64_t reserved_bytes = 0;
};

struct Recording {
  std::vector<std::string> streams;
  std::vector<RecordedOp> ops;  // in issue order
  std::vector<ir::Wait> waits;  // counts are of ops of this step
  int64_t persistent_bytes = 0;
  int64_t peak_live_bytes = 0;
  int64_t reserved_bytes = 0;  // high water of the arena
  std::vector<ir::Walk::Live> live_at_peak;
  int64_t host_peak_live_bytes = 0;  // the host arena's
  int64_t host_reserved_bytes = 0;
  int64_t copied_out_bytes = 0;  // to the host, and from it
  int64_t copied_in_bytes = 0;
  int64_t caching_reserved_bytes = 0;  // a caching allocator's for the same lifetimes, when asked for
};

struct RecordOptions {
  ir::Purpose purpose = ir::Purpose::train;
  int64_t capacity_bytes = 0;       // the arena's; 0: unlimited. The places of values depend on it
  int64_t limit_bytes = 0;          // limit to which the arena may grow beyond; 0: none
  int64_t host_capacity_bytes = 0;  // the host's
  int steps = 1;                   // walks that many and keeps the last: storage is found as the one before left it
  bool keep_peak = false;          // fill live_at_peak
  bool caching_allocator = false;  // fill caching_reserved_bytes
  ScratchBytes scratch_bytes;      // empty: no kernel needs any
  DurationUs duration_us;          // empty: nothing takes time
  DurationUs threads;              // threads that an op keeps busy; empty: none
  /// Share of its rank's units that compute, which an op of another stream takes from those that compute while it
  /// runs; empty: none.
  DurationUs takes;
  LinkUses link_use;                     // empty: nothing crosses a host's links
  RowsRead rows;                         // empty: no rows
  ir::Walk::Watcher* watcher = nullptr;  // the last step's; not owned
};

/// Records the ops of a rank. Throws ir::OutOfMemory where the executor would.
Recording record(const ir::StepProgram& program, int rank, const RecordOptions& options);

}  // namespace heddle::simulate

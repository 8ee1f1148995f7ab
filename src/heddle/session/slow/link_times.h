// Brings the exchanges that ranks have timed by peer (comm/calls/link_log.h) to rank 0, a line for each link and
// kind of op. Of one call's two ends the one that entered later has not waited for the other: its time is the
// shorter, and the link's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "heddle/comm/calls/link_log.h"
#include "heddle/comm/world.h"
#include "heddle/ir/program.h"

namespace heddle::session {

/// The time of a window's calls of one kind between two ranks. In logarithms rates are differences.
struct LinkTime {
  int32_t a = 0, b = 0;            // a < b
  uint32_t kind = 0;               // channel, op and phase: calls that compare
  float log_s = 0, log_bytes = 0;  // medians
  float chance = 0;                // what chance moves the median of log_s by
};

class LinkTimes {
 public:
  static constexpr size_t kLeastCalls = 6;

  /// Ranks that share `world` make it together. Both outlive it.
  LinkTimes(comm::World& world, comm::LinkLog& log);
  /// All ranks call it together: what was timed since the last time, on rank 0; elsewhere nothing.
  std::vector<LinkTime> gather(const ir::StepProgram& program);

 private:
  comm::LinkLog& log_;
  std::unique_ptr<comm::Communicator> all_;
};

/// The lines of a pair, by what both ends have kept, `own` by the one and `theirs` by the other.
struct SeenCall {
  uint64_t call = 0;  // channel and number
  uint32_t kind = 0;
  float seconds = 0, bytes = 0;
};
std::vector<LinkTime> times_of_pair(int a, int b, std::span<const SeenCall> own, std::span<const SeenCall> theirs);

}  // namespace heddle::session

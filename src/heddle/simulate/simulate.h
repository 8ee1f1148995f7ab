// Simulates a step of all ranks in virtual time. It gives start and end of each op on its stream, who waits for
// whom, what memory holds, and whether any rank can be stuck.
//
// Every rank's ops come from the walk that hands the executor its own. An op starts when the one before it on its
// stream has ended, the ops that the walk has it wait for have ended, and the host has issued it. Ops of a group's
// communicator begin together, matched by their order on that stream. A send never waits for its receive; a receive
// ends no earlier than the send. The host is a stream too: it takes `enqueue_us` an op, and a host stall holds back
// all that it issues afterwards. Two streams of a rank run side by side at full speed, as on a device with engines
// of their own and in the paced mode of the CPU device. They slow down for what they share (simulate/sharing.h).
// Ops that keep threads busy share the cores of their machine and slow each other down as `speed` says. Messages
// that cross hosts share the links of each. A message may take a share of its rank's units from what computes there
// beside it (RecordOptions::takes). Ranks that do the same are simulated once (simulate/fold.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heddle/plan/plan.h"
#include "heddle/simulate/fold.h"
#include "heddle/simulate/recording.h"

namespace heddle::simulate {

/// The groups of every stream of the program that communicates.
Groups groups_of(const ir::StepProgram& program, const plan::Mesh& mesh);

struct SimulationInput : RecordOptions {
  Groups groups;
  double enqueue_us = 0;
  double wake_us = 0;  // from what a stream has slept for until its op begins
  /// Speed of each of so many threads that want to run on a machine, over that of one alone. Empty: always 1.
  std::function<double(double threads)> speed;
  std::vector<int> machine_of;  // [rank], from 0; empty: all are on one
  std::vector<int> host_of;     // [rank], from 0, for `link_use`; empty: each has links of its own
  /// False: durations and rows are the same for all ranks of a class and of one number in `alike` (empty: all).
  bool ranks_differ = true;
  std::vector<int> alike;
  /// Each op of each rank lasts so much longer or shorter, a log-normal draw of mean 1 and this relative deviation.
  double jitter = 0;
  uint64_t seed = 1;  // the jitter's
};

/// Recordings of all ranks; those that are alike share one.
using Recordings = std::vector<std::shared_ptr<const Recording>>;
/// Records all ranks. ConfigError where ranks that differ run more ops than can be held (kMostOps).
Recordings record_all(const ir::StepProgram& program, const SimulationInput& input);
constexpr size_t kMostOps = 12'000'000;  // about 2 GB

struct SimulatedOp {
  int32_t listing = 0;
  uint32_t op = 0;
  int32_t microbatch = 0;
  int32_t stream = 0;
  double issued_us = 0;  // by the host
  double start_us = 0;
  double end_us = 0;
  int64_t live_bytes = 0;  // the arena's, once its outputs have their place
  int64_t reserved_bytes = 0;
  bool ran = false;  // false where a deadlock came first
};

struct StreamUse {
  std::string name;
  double busy_us = 0;
  double waiting_us = 0;  // ops were issued, but others had to end or to arrive first
  double idle_us = 0;     // nothing was issued
};

struct RankResult {
  int rank = 0;                  // the first that did this
  int count = 1;                 // ranks that did the same
  std::vector<SimulatedOp> ops;  // in issue order
  std::vector<StreamUse> streams;
  double end_us = 0;
  double host_stalled_us = 0;
  int64_t persistent_bytes = 0;
  int64_t peak_live_bytes = 0;
  int64_t reserved_bytes = 0;
  std::vector<ir::Walk::Live> live_at_peak;  // when asked for, likewise below
  int64_t caching_reserved_bytes = 0;
};

/// One op of the longest chain: each begins when the one before it ends.
struct OpRef {
  int rank = 0;
  uint32_t index = 0;  // index into RankResult::ops
};

struct Simulation {
  double step_us = 0;
  std::vector<RankResult> ranks;     // one for each kind of rank
  std::vector<int> kind_of;          // [rank]: index into `ranks`
  std::vector<OpRef> critical_path;  // from the start of the step to its end; host time lies in the gaps
  /// Empty, or what every stuck stream waits for, one a line.
  std::string deadlock;

  const RankResult& of(int rank) const { return ranks[kind_of[rank]]; }
};

/// Simulates a step. InternalError when the program communicates on a stream that `groups` lacks.
Simulation simulate(const ir::StepProgram& program, const SimulationInput& input);
/// As above, with recordings that were made before: several simulations can share them.
Simulation simulate(const ir::StepProgram& program, const SimulationInput& input, const Recordings& recordings);

}  // namespace heddle::simulate

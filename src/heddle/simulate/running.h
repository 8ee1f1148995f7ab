// The state of a simulation: what each kind of rank has run, and what its group's communicators hold.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "heddle/simulate/simulate.h"

namespace heddle::simulate {

inline constexpr OpRef kNobody{-1, 0};  // in references within, `rank` is a kind of rank

// A place in a group's communicator.
struct Member {
  int group = -1;
  int position = 0;
};

// The communicator of a group of ranks: collectives by order, messages by sender and receiver. It stands for all
// groups of the same kinds.
struct GroupQueue {
  std::vector<int> kinds;  // by position
  size_t distinct = 0;     // kinds
  struct Meeting {
    std::vector<OpRef> arrived;
  };
  std::vector<Meeting> meetings;
  std::map<int, size_t> met;  // by kind: collectives begun
  struct Mail {
    std::vector<OpRef> sent;  // ended sends
    size_t received = 0;
    bool waited_for = false;
  };
  std::map<std::pair<int, int>, Mail> mail;
};

struct Lane {                 // a stream of a rank
  std::vector<uint32_t> ops;  // indices into the recording
  size_t next = 0;            // the op that is to run
  double free_us = 0;         // end of the op before it
  bool running = false;       // the op at `next`
  bool met = false;           // the op to run has arrived at its meeting
  std::vector<int> sleepers;  // lanes of this rank that wait for this one to go on
  double busy_us = 0, waiting_us = 0;
};
// A rank.
struct RankState {
  std::shared_ptr<const Recording> recording;
  std::vector<SimulatedOp> ops;
  std::vector<OpRef> cause;  // the op whose end let each op start
  std::vector<Lane> lanes;
  std::vector<Member> members;  // by channel
  size_t issued = 0;            // ops that the host has enqueued
  double host_us = 0;
  double stalled_us = 0;
  int64_t stalled_on = -1;
};

/// The program, its ranks and where they meet.
struct Running {
  const ir::StepProgram& program;
  const ir::StreamTable table;  // for all listings: it numbers channels
  const Fold fold;
  std::vector<RankState> ranks;  // [kind of rank]
  std::vector<GroupQueue> group_queues;

  int first_of(int kind) const { return fold.first[static_cast<size_t>(kind)]; }
  const ir::Op& op_of(const SimulatedOp& op) const { return program.listings[op.listing].ops[op.op]; }
};

/// Reports what has run when nothing runs any more, and who is stuck. Takes the ops out of the ranks.
Simulation report_of(Running& running);

}  // namespace heddle::simulate

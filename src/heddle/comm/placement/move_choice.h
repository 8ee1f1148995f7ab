// The choice of other holders for a layer's experts, if these are better. It follows from the loads of the last
// steps: by what a step takes with the homes that there are and with others, and by what moving takes.
//
// One pure function of what all ranks know, so that every rank comes to the same choice; ties go to the lower
// index. Experts change places two by two, each taking the other's place number on its holder. So no holder ever
// has more experts than places. An optimizer that is shared out among copies finds an expert's numbers in the same
// run.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/comm/placement/placement.h"

namespace heddle::comm {

struct MoveRules {
  PlacementRules placing;        // by what a microbatch takes, with the replicas of hot experts that it would have
  int64_t rows = 0;              // of a source in a microbatch
  double microbatches = 1;       // within which moving has to pay
  int64_t expert_within_ps = 0;  // of one expert's state over a link within a node,
  int64_t expert_across_ps = 0;  // and between nodes
};

enum class MoveOutcome : uint8_t {
  even,       // the load is: nothing was looked for
  not_worth,  // nothing would have paid
  moved,
};

struct MoveChoice {
  MoveOutcome outcome = MoveOutcome::even;
  std::vector<int32_t> position_of_E;  // then
  int64_t moved = 0;                   // experts
  int64_t gain_ps = 0;                 // of a microbatch, as predicted
  int64_t cost_ps = 0;                 // once
};

/// `rows_E`: of each expert, in proportion. `position_of_E`: where they are. Of what is tried only such homes are
/// chosen as gain more, over all microbatches, than moving costs, and at least a 64th of what a microbatch takes
/// now.
MoveChoice choose_moves(const std::vector<double>& rows_E, const std::vector<int32_t>& position_of_E,
                        const Holders& holders, const MoveRules& rules);

/// The busiest link's time for the state of the experts that live elsewhere then.
int64_t moving_ps(const std::vector<int32_t>& before_E, const std::vector<int32_t>& after_E, const Holders& holders,
                  const MoveRules& rules);

}  // namespace heddle::comm

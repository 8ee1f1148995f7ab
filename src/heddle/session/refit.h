// What the first steps of a plan that was chosen teach about the machine's profile, and about the choice.
//
// Two factors are fitted: that of all ops, by how long the compute streams were busy, and that of the messages over
// the job's links, so that the simulated step is as long as the measured one. Where no step was traced, and on one
// rank, the ops' alone, by the step. The profile is moved half of the way (in the logarithm): other programs may
// have had the machine meanwhile.
#pragma once

#include <optional>

#include "heddle/planner/choose_plan.h"
#include "heddle/session/training_run.h"

namespace heddle::session {

/// The forecast of a configuration by a profile.
using ForeseeBy = std::function<planner::ConfigForecast(const config::RunConfig&, const cost::MachineProfile&)>;

struct Refit {
  cost::MachineProfile profile;
  double foretold_s = 0;                     // of the chosen plan, by it
  planner::Candidate chosen;                 // by it
  std::optional<planner::Candidate> better;  // that the mode would now choose instead
};

/// `chosen` among `candidates`, of which the best few are simulated again, at most `seconds` long.
Refit refit(const std::string& path, const std::vector<std::string>& set, const planner::PlanChoice& choice,
            planner::PlanMode mode, const cost::MachineProfile& profile, cost::Link over, const ForeseeBy& foresee,
            const FirstSteps& seen, double seconds);

}  // namespace heddle::session

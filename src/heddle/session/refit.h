// Corrects the machine's profile, and the choice of plan, by the first steps of a chosen plan.
//
// Two factors are fitted: one for all ops, by how long the compute streams were busy, and one for messages over the
// job's links. With both, the simulated step is as long as the measured one. Where no step was traced, and on one
// rank, only the ops' factor is fitted, by the step. The profile is moved half of the way (in the logarithm): other
// programs may have had the machine meanwhile.
#pragma once

#include <optional>

#include "heddle/planner/choose_plan.h"
#include "heddle/session/training_run.h"

namespace heddle::session {

/// Predicts a configuration by a profile.
using PredictByFn = std::function<planner::ConfigPrediction(const config::RunConfig&, const cost::MachineProfile&)>;

struct Refit {
  cost::MachineProfile profile;
  double predicted_s = 0;                    // step of the chosen plan, by the profile
  planner::Candidate chosen;                 // the chosen plan, by the profile
  std::optional<planner::Candidate> better;  // the plan that the mode would now choose instead
};

/// `chosen` among `candidates`, of which the best few are simulated again, at most `seconds` long.
Refit refit(const std::string& path, const std::vector<std::string>& set, const planner::PlanChoice& choice,
            planner::PlanMode mode, const cost::MachineProfile& profile, cost::Link over,
            const PredictByFn& predict, const FirstSteps& seen, double seconds);

}  // namespace heddle::session

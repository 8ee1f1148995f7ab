// The result of --mode: a plan that was chosen by simulating candidates, and what it learns once it runs.
#pragma once

#include "heddle/cli/train/train_options.h"
#include "heddle/comm/world.h"
#include "heddle/cost/machine_profile.h"
#include "heddle/planner/choose_plan.h"
#include "heddle/planner/machine.h"
#include "heddle/session/refit.h"

namespace heddle::cli {

/// Rank 0 alone has more than the settings.
struct ChosenPlan {
  std::vector<std::string> set;  // the plan's settings, over the user's
  planner::PlanMode mode = planner::PlanMode::automatic;
  planner::JobPlaces places;
  cost::MachineProfile profile;
  planner::PlanChoice choice;
};

/// Chooses the plan and reports it. All ranks of a launcher's job call it together; null: there is none.
ChosenPlan choose_by_mode(const TrainOptions& options, const std::vector<std::string>& set, comm::World* world);

/// The profile learns what the first steps took; lines for the log.
std::vector<std::string> learn(const TrainOptions& options, const std::vector<std::string>& set,
                               const ChosenPlan& planned, double& refitted_s, const session::FirstSteps& seen);

/// Settings that would make a configuration fit; `places` are those of its ranks.
std::string remedy(const TrainOptions& options, const std::vector<std::string>& set,
                   const planner::JobPlaces& places);

}  // namespace heddle::cli

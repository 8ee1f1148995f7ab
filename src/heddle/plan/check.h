// The parts of a plan that do not fit its model, its mesh or itself. Each rule stands here or in plan/refusals
// once. A reader of a configuration adds the place where the key was set; a writer asks before it writes.
#pragma once

#include <vector>

#include "heddle/model/model_config.h"
#include "heddle/plan/plan.h"
#include "heddle/plan/refusals.h"
#include "heddle/schedule/schedule.h"

namespace heddle::plan {

/// Refusals of the model, the length of a sequence and the objective: mesh, schedule and backend have no part in
/// it.
std::vector<Refusal> refusals_of_model(const model::ModelConfig& config, const Plan& plan);

/// Those refusals, and all others that no schedule is needed for: pairs of switches, degrees, sizes that a mesh
/// cuts.
std::vector<Refusal> refusals_before_schedule(const model::ModelConfig& config, const Plan& plan);

/// Refusals of the placement that a schedule gives the stages.
std::vector<Refusal> refusals_of_placement(const Plan& plan, const schedule::Placement& placement);

/// Everything. The schedule is made, and layers are laid out on its stages, only where nothing else is refused.
/// Empty: the plan can be lowered.
std::vector<Refusal> refusals_of(const model::ModelConfig& config, const Plan& plan);

/// ConfigError with the first message, unless there is none.
void refuse(const std::vector<Refusal>& refusals);

}  // namespace heddle::plan

// The profile of the machine that a run is planned by.
#pragma once

#include <optional>

#include "heddle/cli/train/train_options.h"
#include "heddle/comm/world.h"
#include "heddle/cost/machine_profile.h"
#include "heddle/planner/machine.h"

namespace heddle::cli {

/// The file: the line's, else the one that `heddle profile` keeps of the backend.
std::string profile_path(const TrainOptions& options, std::string_view backend = "host");

/// The profile, measured where it is not known yet, with the times of the job's links. All ranks call it together;
/// rank 0 alone then has it. `places` becomes theirs.
cost::MachineProfile job_profile(const TrainOptions& options, const std::string& backend, comm::World& world,
                                 planner::JobPlaces& places);

/// This machine's profile where there is one. One that can't be read is reported and done without, unless the line
/// names it.
std::optional<cost::MachineProfile> known_profile(const TrainOptions& options, std::string_view backend = "host");

}  // namespace heddle::cli

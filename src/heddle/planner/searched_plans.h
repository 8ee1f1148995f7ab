// The plans of a configuration that `heddle search` finds for this machine: from the same space, by the same rules,
// with Heddle's own layers lowered and priced by the machine's profile.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "heddle/planner/machine.h"

namespace heddle::planner {

/// Plans for the configuration's ranks and global batch, the best first, each as settings: "mesh.tp=2", … Keys of
/// `fixed` keep what is configured. Empty where the search has nothing to say, or finds nothing that could fit.
std::vector<std::vector<std::string>> searched_plans(const config::RunConfig& config,
                                                     const std::set<std::string>& fixed,
                                                     const cost::MachineProfile& profile, const JobPlaces& places);

}  // namespace heddle::planner

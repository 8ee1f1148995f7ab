// The rates by which weaving and offload decide, from the profile of the machine. Rank 0 sends this handful of
// numbers to all ranks as settings, so that all lower the same program. They stand in the run's record. No bit
// depends on them.
#pragma once

#include <string>
#include <vector>

#include "heddle/planner/machine.h"

namespace heddle::planner {

/// The keys that say rates: "device.product_rate", …
const std::vector<std::string>& rate_keys();

/// The configuration with the rates that it leaves open and the profile knows. As it is for a backend whose device
/// the profile does not measure.
config::RunConfig rated(config::RunConfig config, const cost::MachineProfile& profile,
                        const JobPlaces& places = {});

/// The rates in which one configuration differs from another, as settings: "device.product_rate=81.5", …
std::vector<std::string> rate_settings(const config::RunConfig& from, const config::RunConfig& to);

}  // namespace heddle::planner

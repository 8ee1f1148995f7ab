// Settings that rank 0 finds out for all, so that all lower the same program.
#pragma once

#include "heddle/cli/train/train_options.h"
#include "heddle/comm/world.h"
#include "heddle/cost/machine_profile.h"
#include "heddle/planner/machine.h"
#include "heddle/train/rank_exchange.h"

namespace heddle::cli {

/// The rates by which weaving and offload decide, and, where it is left open, where state lies and what keeps the
/// run within memory.budget, over `set`. `measured`: the machine's profile, if one was just read or made. All ranks
/// call it together; null: there is one.
std::vector<std::string> found_settings(const TrainOptions& options, const std::vector<std::string>& set,
                                        const planner::JobPlaces& places, const cost::MachineProfile* measured,
                                        comm::World* world);

/// Gives the settings of rank 0 to all ranks.
std::vector<std::string> from_first_rank(train::RankExchange& ranks, const std::vector<std::string>& settings);

}  // namespace heddle::cli

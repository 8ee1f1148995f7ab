// Runs a command on all ranks of a run: the processes of a launcher, or threads of this one.
#pragma once

#include <functional>

#include "heddle/comm/world.h"
#include "heddle/config/run_config.h"

namespace heddle::cli {

/// Calls `body` on every rank, then `tell` on rank 0, and returns its exit status; the others' is that of success.
/// `config_of` is given the number of processes that a launcher has started, else `ranks`; without a launcher the
/// configuration says how many threads there are. `world` is null where there is one rank.
int on_ranks(int ranks, const std::function<config::RunConfig(int ranks)>& config_of,
             const std::function<void(const config::RunConfig& config, comm::World* world)>& body,
             const std::function<int()>& tell);

}  // namespace heddle::cli

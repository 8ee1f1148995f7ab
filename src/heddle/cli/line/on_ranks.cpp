#include "heddle/cli/line/on_ranks.h"

#include "heddle/base/failure.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/session/rank_run.h"

namespace heddle::cli {

int on_ranks(int ranks, const std::function<config::RunConfig(int ranks)>& config_of,
             const std::function<void(const config::RunConfig& config, comm::World* world)>& body,
             const std::function<int()>& tell) {
  if (comm::launched_by_mpi()) {
    return session::run_under_mpi([&](comm::World& world) {
      body(config_of(world.size()), &world);
      return world.rank() == 0 ? tell() : kDone;
    });
  }
  const config::RunConfig config = config_of(ranks);
  if (config.ranks() == 1) {
    body(config, nullptr);
  } else {
    comm::run_on_threads(static_cast<int>(config.ranks()), [&](comm::World& world) { body(config, &world); });
  }
  return tell();
}

}  // namespace heddle::cli

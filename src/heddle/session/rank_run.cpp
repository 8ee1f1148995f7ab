#include "heddle/session/rank_run.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <map>
#include <vector>

#include "heddle/base/escaped.h"
#include "heddle/base/failure.h"
#include "heddle/base/say.h"
#include "heddle/comm/device_world.h"
#include "heddle/comm/mpi_world.h"

namespace heddle::session {

namespace {

// Seconds for a peer that is alive but has nothing to say: rank 0 may be preparing data all that time.
constexpr double kRankPatience_s = 1800;

// The cores that this process may use.
std::string own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::string text;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return text;  // more than CPU_SETSIZE: taken for all
  for (int i = 0; i < CPU_SETSIZE; ++i) text += CPU_ISSET(i, &cores) ? '1' : '0';
  return text;
}

}  // namespace

train::Sharing sharing_of(comm::World* world) {
  train::Sharing sharing;
  if (world == nullptr) return sharing;
  const std::vector<std::string> cores = train::RankExchange(world).share(own_cores());
  sharing = {.memory = 0, .cores = 0, .seat = comm::seat_in(*world)};
  for (int r = 0; r < world->size(); ++r) {
    if (world->node_of(r) != world->node_of(world->rank())) continue;
    ++sharing.memory;
    sharing.cores += cores[r] == cores[world->rank()];
  }
  return sharing;
}

planner::JobPlaces places_of(comm::World& world, int profiled_cores) {
  planner::JobPlaces places;
  const std::vector<std::string> cores = train::RankExchange(&world).share(own_cores());
  const auto own = static_cast<int>(std::count(cores[0].begin(), cores[0].end(), '1'));
  std::map<std::pair<int, std::string>, int> machines;
  std::map<int, int> on_node;
  for (int r = 0; r < world.size(); ++r) {
    const std::string& set = profiled_cores > own ? std::string() : cores[r];
    const int next = static_cast<int>(machines.size());
    places.machine_of.push_back(machines.try_emplace({world.node_of(r), set}, next).first->second);
    places.node_of.push_back(world.node_of(r));
    places.sharing_memory = std::max(places.sharing_memory, ++on_node[world.node_of(r)]);
  }
  places.over = on_node.size() > 1 ? cost::Link::nodes : cost::Link::node;
  int beside = 0;  // ranks of the first one's node on the same cores
  for (int r = 0; r < world.size(); ++r) {
    beside += world.node_of(r) == world.node_of(0) && cores[r] == cores[0];
  }
  places.threads = std::max(1, own / std::max(1, beside));
  return places;
}

int run_under_mpi(const std::function<int(comm::World&)>& body) {
  const int rank = comm::launched_rank();
  const bool first = rank == 0;
  std::atomic<bool> reported = !first;
  comm::MpiOptions options;
  options.timeout_seconds = kRankPatience_s;
  // Rank 0 speaks for all, and where it can't the next one does.
  options.report = [&](const std::string& reason, int accused) {
    const bool silent = reported.exchange(true);
    if (accused == 0 ? rank == 1 : !silent) say(stderr, "heddle: {}\n", escaped_lines(reason));
  };
  std::unique_ptr<comm::World> world;
  try {
    world = comm::mpi_world(options);
  } catch (const PeerError& missing) {  // nobody else may have missed that rank
    reported = false;
    options.report(missing.reason, -1);
    return kFailed;
  } catch (const Error&) {
    if (first) throw;
    return kDone;  // no rank has come far: a status would make the launcher end rank 0 before it has spoken
  }
  try {
    return body(*world);
  } catch (const std::exception& error) {
    const bool speaks = !reported.exchange(true);
    // All ranks end with one status, or the launcher's would be that of whichever ends first.
    const bool input = dynamic_cast<const ConfigError*>(&error) != nullptr;
    world->abort(fmt::format("rank {}: {}", world->rank(), error.what()), input);
    world.reset();
    if (speaks) throw;
    return input ? kBadInput : kFailed;
  }
}

}  // namespace heddle::session

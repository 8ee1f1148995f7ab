#include "heddle/cli/train/train_profile.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"
#include "heddle/planner/measure_machine.h"
#include "heddle/planner/profile_file.h"
#include "heddle/session/rank_run.h"
#include "heddle/train/rank_exchange.h"

namespace heddle::cli {

std::string profile_path(const TrainOptions& options, std::string_view backend) {
  return options.profile.empty() ? planner::machine_profile_path(backend) : options.profile;
}

cost::MachineProfile job_profile(const TrainOptions& options, const std::string& backend, comm::World& world,
                                 planner::JobPlaces& places) {
  constexpr double kMeasure_s = 45;
  train::RankExchange ranks(&world);
  cost::MachineProfile profile;
  if (ranks.leads()) profile = planner::machine_profile(options.profile, kMeasure_s, backend);
  places = session::places_of(world, profile.cores);
  const bool known = std::any_of(profile.links.begin(), profile.links.end(), [&](const cost::LinkTime& l) {
    return l.over == places.over && l.ranks == world.size();
  });
  if (world.size() == 1 || !ranks.any(ranks.leads() && !known)) return profile;
  const std::vector<cost::LinkTime> found = planner::measure_links(world, places.over, backend);
  if (!ranks.leads()) return profile;
  std::erase_if(profile.links, [&](const cost::LinkTime& l) {
    return l.over == places.over &&
           std::any_of(found.begin(), found.end(), [&](const cost::LinkTime& f) { return f.ranks == l.ranks; });
  });
  profile.links.insert(profile.links.end(), found.begin(), found.end());
  write_file(profile_path(options, backend), planner::profile_text(profile));
  return profile;
}

std::optional<cost::MachineProfile> known_profile(const TrainOptions& options, std::string_view backend) {
  const std::string path = profile_path(options, backend);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  try {
    return planner::read_profile(path);
  } catch (const ConfigError& error) {
    if (!options.profile.empty()) throw;
    say(stderr, "heddle: warning: {}; overlap and offload use nominal rates\n", escaped(error.what()));
    return std::nullopt;
  }
}

}  // namespace heddle::cli

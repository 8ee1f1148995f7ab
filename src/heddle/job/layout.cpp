#include "heddle/job/layout.h"

#include <algorithm>
#include <set>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/config/exact_layout.h"
#include "heddle/planner/choose_plan.h"
#include "heddle/planner/searched_plans.h"
#include "heddle/search/space.h"

namespace heddle::job {

namespace {

using Set = std::vector<std::string>;

constexpr const char* kShardRanks = "parallel.shard_ranks";

std::string key_of(const std::string& setting) { return setting.substr(0, setting.find('=')); }

bool is_of_layout(const std::string& key, bool exact) {
  // Which sequences make a microbatch decides how a step's sums are cut: exact sums are those of one cut.
  return key.starts_with("mesh.") ||
         is_one_of(key, {"parallel.schedule", "parallel.chunks", "parallel.layout", kShardRanks}) ||
         (!exact && key == "train.microbatch");
}

Set joined(Set set, const Set& more) {
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

planner::JobPlaces places_on(const std::vector<Host>& hosts, int ranks) {
  planner::JobPlaces places;
  for (size_t h = 0; h < hosts.size(); ++h) {
    for (int s = 0; s < hosts[h].slots && static_cast<int>(places.node_of.size()) < ranks; ++s)
      places.node_of.push_back(static_cast<int>(h));
    places.sharing_memory = std::max(places.sharing_memory, hosts[h].slots);
  }
  places.machine_of = places.node_of;
  places.over = !places.node_of.empty() && places.node_of.back() > 0 ? cost::Link::nodes : cost::Link::node;
  return places;
}

// Every cut into stages and every spread of the experts, with the asked schedule, tp and cp, and without them; then
// what a search finds. Each goes behind the user's settings.
std::vector<Set> candidates(const config::RunConfig& config, const plan::Degrees& asked, int ranks, bool exact,
                            const cost::MachineProfile& profile, const planner::JobPlaces& places) {
  std::vector<Set> all;
  const auto grid = [&](int kept, const Set& more) {
    if (ranks % kept != 0) return;
    for (const int pp : search::divisors(ranks / kept)) {
      for (const int ep : search::divisors(ranks / pp)) {
        const Set base = joined(more, {fmt::format("mesh.pp={}", pp), fmt::format("mesh.ep={}", ep), "mesh.dp=0"});
        all.push_back(base);
        all.push_back(joined(base, {"parallel.schedule=1f1b", "parallel.chunks=0", "parallel.layout="}));
      }
    }
  };
  const int kept = asked.tp * asked.cp;
  grid(kept, {});
  if (!exact && kept > 1) grid(1, {"mesh.tp=1", "mesh.cp=1", "mesh.etp=1"});
  std::set<std::string> fixed;
  if (exact) fixed = {"mesh.tp", "mesh.cp", "mesh.etp", "train.microbatch"};
  try {
    for (Set& found : planner::searched_plans(config, fixed, profile, places)) {
      std::erase_if(found, [&](const std::string& s) { return !is_of_layout(key_of(s), exact); });
      all.push_back(joined({"parallel.chunks=0", "parallel.layout="}, found));
    }
  } catch (const ConfigError&) {  // the configuration as it stands is no plan of so many ranks: the grid has others
  }
  return all;
}

}  // namespace

std::optional<Layout> layout_for(const std::string& path, const std::vector<std::string>& set,
                                 const std::vector<Host>& hosts, const cost::MachineProfile& profile,
                                 double seconds) {
  const double until_s = now_s() + seconds;
  const plan::Choices asked = config::read_run_config(path, set).plan;
  const bool exact = asked.exact_sums;
  const std::string one_copy = fmt::format("{}=0", kShardRanks);  // of the weights: goes with every number of ranks
  Set others = set;
  std::erase_if(others, [&](const std::string& s) { return is_of_layout(key_of(s), exact); });
  for (int ranks = slots_of(hosts); ranks >= 1; --ranks) {
    const planner::JobPlaces places = places_on(hosts, ranks);
    // The configuration that candidates are made of: one rank of each kind is a plan wherever any is.
    const Set of_ranks{fmt::format("mesh.ranks={}", ranks)};
    config::RunConfig config = config::read_run_config(path, joined(others, {one_copy}));
    config.mesh_ranks = ranks;
    std::optional<Layout> best;
    std::set<Set> seen;
    int considered = 0;
    std::vector<Set> sets = candidates(config, asked.mesh, ranks, exact, profile, places);
    if (asked.parallel.shard_ranks > 0) {
      const std::string asked_copies = fmt::format("{}={}", kShardRanks, asked.parallel.shard_ranks);
      for (size_t i = 0, count = sets.size(); i < count; ++i) {
        sets.push_back(joined(sets[i], {one_copy}));
        sets[i].push_back(asked_copies);
      }
    }
    for (const Set& candidate : sets) {
      if (best && now_s() > until_s) break;
      if (!seen.insert(candidate).second) continue;
      const Set all = joined(set, joined(of_ranks, candidate));  // as the ranks get them
      try {
        const config::RunConfig as = config::read_run_config(path, all);
        if (exact && !config::why_not_exact(as.model, as.degrees(), places.node_of).empty()) continue;
        const planner::Candidate found = planner::predicted(
            path, all, {},
            [&](const config::RunConfig& c, bool tried) {
              return planner::predict_config(c, profile, places, tried);
            },
            false);
        if (!found.fits()) continue;
        ++considered;
        const double step_s = found.step_us * 1e-6;
        if (!best || step_s < best->step_s) best = Layout{ranks, joined(of_ranks, candidate), step_s, 0};
      } catch (const ConfigError&) {  // no plan
      }
    }
    if (!best) continue;
    best->considered = considered;
    return best;
  }
  return std::nullopt;
}

}  // namespace heddle::job

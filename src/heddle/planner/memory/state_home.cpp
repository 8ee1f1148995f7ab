#include "heddle/planner/memory/state_home.h"

#include <algorithm>

#include "heddle/base/words.h"
#include "heddle/observe/units.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

namespace {

// Whether every pipeline rank has room for its part.
bool fits(const config::RunConfig& config, plan::StateHome home) {
  config::RunConfig with = config;
  with.plan.memory.optimizer = home;
  const plan::Mesh mesh(with.degrees());
  try {
    for (int r = 0, next = 0; r < mesh.ranks() && next < with.degrees().pp; ++r) {
      if (mesh.at(r).at(ir::Axis::pp) != next) continue;
      train::arena_bytes_of(with, r, {.memory = mesh.ranks()});
      ++next;
    }
  } catch (const train::DoesNotFit&) {
    return false;
  }
  return true;
}

}  // namespace

std::optional<HomeOfState> home_of_state(const config::RunConfig& config) {
  if (config.plan.memory.optimizer != plan::StateHome::cheapest) return std::nullopt;
  HomeOfState found;
  if (fits(config, plan::StateHome::device)) return found;
  found.costs = plan::state_costs(config.model, train::plan_of(config));
  std::vector<plan::StateCost> open = found.costs;
  std::sort(open.begin(), open.end(), [](const auto& a, const auto& b) { return a.end_s < b.end_s; });
  for (const plan::StateCost& cost : open) {
    if (cost.home == plan::StateHome::device || !fits(config, cost.home)) continue;
    found.chosen = cost;
    return found;
  }
  found.chosen = *std::min_element(open.begin(), open.end(),
                                   [](const auto& a, const auto& b) { return a.device_bytes < b.device_bytes; });
  return found;
}

std::vector<std::string> home_settings(const config::RunConfig& config,
                                       const std::function<void(const std::string& line)>& tell) {
  const std::optional<HomeOfState> home = home_of_state(config);
  if (!home) return {};
  const std::string word(word_of(home->chosen.home));
  std::string why = "all of it fits on the device";
  if (!home->costs.empty()) {
    std::vector<std::string> each;
    for (const plan::StateCost& cost : home->costs) {
      each.push_back(fmt::format("{} {} on the device, {} on the host, the end of a step {}", word_of(cost.home),
                                 observe::bytes_text(static_cast<double>(cost.device_bytes)),
                                 observe::bytes_text(static_cast<double>(cost.host_bytes)),
                                 observe::duration_text(cost.end_s)));
    }
    why = fmt::format("of {}", fmt::join(each, "; "));
  }
  tell(fmt::format("memory.optimizer auto: {}: {}", word, why));
  return {"memory.optimizer=" + word};
}

}  // namespace heddle::planner

#include "heddle/planner/memory/state_residency.h"

#include <algorithm>

#include "heddle/base/words.h"
#include "heddle/observe/units.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

namespace {

// True if every pipeline rank has room for its part.
bool fits(const config::RunConfig& config, plan::StateResidency residency) {
  config::RunConfig with = config;
  with.plan.memory.optimizer = residency;
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

std::optional<ChosenResidency> choose_residency(const config::RunConfig& config) {
  if (config.plan.memory.optimizer != plan::StateResidency::cheapest) return std::nullopt;
  ChosenResidency found;
  if (fits(config, plan::StateResidency::device)) return found;
  found.costs = plan::state_costs(config.model, train::plan_of(config));
  std::vector<plan::StateCost> open = found.costs;
  std::sort(open.begin(), open.end(), [](const auto& a, const auto& b) { return a.end_s < b.end_s; });
  for (const plan::StateCost& cost : open) {
    if (cost.residency == plan::StateResidency::device || !fits(config, cost.residency)) continue;
    found.chosen = cost;
    return found;
  }
  found.chosen = *std::min_element(open.begin(), open.end(),
                                   [](const auto& a, const auto& b) { return a.device_bytes < b.device_bytes; });
  return found;
}

std::vector<std::string> residency_settings(const config::RunConfig& config,
                                            const std::function<void(const std::string& line)>& tell) {
  const std::optional<ChosenResidency> residency = choose_residency(config);
  if (!residency) return {};
  const std::string word(word_of(residency->chosen.residency));
  std::string why = "all of it fits on the device";
  if (!residency->costs.empty()) {
    std::vector<std::string> each;
    for (const plan::StateCost& cost : residency->costs) {
      each.push_back(fmt::format(
          "{} {} on the device, {} on the host, the end of a step {}", word_of(cost.residency),
          observe::bytes_text(static_cast<double>(cost.device_bytes)),
          observe::bytes_text(static_cast<double>(cost.host_bytes)), observe::duration_text(cost.end_s)));
    }
    why = fmt::format("of {}", fmt::join(each, "; "));
  }
  tell(fmt::format("memory.optimizer auto: {}: {}", word, why));
  return {"memory.optimizer=" + word};
}

}  // namespace heddle::planner

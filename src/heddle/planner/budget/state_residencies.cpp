#include "heddle/planner/budget/state_residencies.h"

#include "heddle/backends/backend.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

bool has_own_memory(const config::RunConfig& config) {
  return !backends::named(config.device.backend).shares_memory;
}

bool matters(const plan::Planned& planned, const config::RunConfig& config, bool own_memory) {
  switch (planned.where) {
    case plan::Planned::Where::anywhere: return true;
    case plan::Planned::Where::several_ranks: return config.ranks() > 1;
    case plan::Planned::Where::own_memory: return own_memory;
    case plan::Planned::Where::narrow_weights: return train::resolved_dtype(config) == Dtype::bf16;
  }
  return false;
}

void StateResidencies::set(plan::Choices& choices) const {
  for (const auto& [setting, value] : of) setting->set(choices, value);
}

std::vector<std::string> StateResidencies::settings() const {
  std::vector<std::string> all;
  for (const auto& [setting, value] : of) all.push_back(setting->key + "=" + plan::text_of(value));
  return all;
}

std::vector<std::vector<StateResidencies>> residency_rows(const config::RunConfig& config, bool own_memory) {
  std::vector<std::vector<StateResidencies>> rows;
  const plan::Choices usual;
  for (const plan::Setting<plan::Choices>& s : plan::settings()) {
    if (!s.is_switch(plan::MathsClass::bitwise) || !s.as_switch->planned || !s.as_switch->planned->residency)
      continue;
    if (!matters(*s.as_switch->planned, config, own_memory) || s.get(config.plan) != s.get(usual)) continue;
    std::vector<StateResidencies>& row = rows.emplace_back();
    for (const plan::Value& value : s.planned_values()) row.push_back({{{&s, value}}});
  }
  return rows;
}

}  // namespace heddle::planner

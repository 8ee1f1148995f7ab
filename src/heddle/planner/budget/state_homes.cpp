#include "heddle/planner/budget/state_homes.h"

#include "heddle/backends/backend.h"

namespace heddle::planner {

bool has_own_memory(const config::RunConfig& config) {
  return !backends::named(config.device.backend).shares_memory;
}

bool matters(const plan::Planned& planned, const config::RunConfig& config, bool own_memory) {
  switch (planned.where) {
    case plan::Planned::Where::anywhere: return true;
    case plan::Planned::Where::several_ranks: return config.ranks() > 1;
    case plan::Planned::Where::own_memory: return own_memory;
  }
  return false;
}

void StateHomes::set(plan::Choices& choices) const {
  for (const auto& [setting, value] : of) setting->set(choices, value);
}

std::vector<std::string> StateHomes::settings() const {
  std::vector<std::string> all;
  for (const auto& [setting, value] : of) all.push_back(setting->key + "=" + plan::text_of(value));
  return all;
}

std::vector<StateHomes> state_homes(const config::RunConfig& config, bool own_memory) {
  std::vector<StateHomes> all{{}};
  const plan::Choices usual;
  for (const plan::Setting<plan::Choices>& s : plan::settings()) {
    if (!s.key.starts_with("memory.") || s.kind == plan::Row::Kind::list || !s.is_switch(plan::MathsClass::bitwise))
      continue;
    if (!s.as_switch->planned || !matters(*s.as_switch->planned, config, own_memory) ||
        s.get(config.plan) != s.get(usual))
      continue;
    const size_t before = all.size();
    for (const plan::Value& value : s.planned_values()) {
      if (value == s.get(usual)) continue;
      for (size_t i = 0; i < before; ++i) {
        all.push_back(all[i]);
        all.back().of.emplace_back(&s, value);
      }
    }
  }
  return all;
}

}  // namespace heddle::planner

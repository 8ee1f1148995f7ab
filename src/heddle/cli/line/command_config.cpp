#include "heddle/cli/line/command_config.h"

#include <cstdio>

#include "heddle/base/escaped.h"
#include "heddle/base/say.h"
#include "heddle/config/placed_config.h"
#include "heddle/plan/check.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::cli {

namespace {

// Checks a plan. A choice that is left open may still get any of its values: it takes the one that goes with most.
void check_plan(config::PlacedConfig told) {
  config::RunConfig& config = told.config;
  if (config.plan.memory.optimizer == plan::StateResidency::cheapest)
    config.plan.memory.optimizer = plan::StateResidency::device;
  told.refuse(plan::refusals_of(config.model, train::plan_of(config)));
}

}  // namespace

config::RunConfig command_config(const std::string& path, const std::vector<std::string>& set,
                                 const ConfigUse& how) {
  std::vector<std::string> warnings;
  config::PlacedConfig told = config::read_placed_config(path, set, &warnings);
  if (how.is_plan) check_plan(told);
  if (!how.tell) return told.config;
  for (const std::string& warning : warnings) say(stderr, "heddle: warning: {}\n", escaped(warning));
  return told.config;
}

}  // namespace heddle::cli

#include "heddle/planner/launch_text.h"

#include "heddle/base/error.h"
#include "heddle/config/run_config.h"

namespace heddle::planner {

std::string launch_text(const search::Launch& launch, std::string_view target) {
  if (const auto refusals = search::refusals_of(launch, target); !refusals.empty())
    config_error("{} can't run this: {}", target, refusals.front());
  if (target == "megatron") return search::script_text(launch, search::Dialect::megatron);
  if (target == "mindspeed") return search::script_text(launch, search::Dialect::mindspeed);
  const config::RunConfig config = config::parse_run_config("", "", search::heddle_settings(launch));
  return "# Written by heddle search. `heddle inspect` counts it, `heddle train` runs it.\n" +
         config::toml_of(config, config::RunConfig());
}

}  // namespace heddle::planner

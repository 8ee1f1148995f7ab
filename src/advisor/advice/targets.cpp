#include "advisor/advice/targets.h"

#include <optional>

#include "advisor/script/emit.h"
#include "heddle/base/error.h"
#include "heddle/planner/launch_settings.h"

namespace heddle::advisor {

namespace {

// Dialect of another trainer; none: Heddle.
std::optional<Dialect> dialect_of(std::string_view target) {
  if (target == "megatron") return Dialect::megatron;
  if (target == "mindspeed") return Dialect::mindspeed;
  if (target == "heddle") return std::nullopt;
  config_error("'{}' is no target, accepted: {}{}", target.substr(0, 40), fmt::join(emit_targets(), ", "),
               did_you_mean(target, emit_targets()));
}

}  // namespace

const std::vector<std::string>& emit_targets() {
  static const std::vector<std::string> names{"heddle", "megatron", "mindspeed"};
  return names;
}

std::vector<std::string> refusals_of(const Launch& launch, std::string_view target) {
  const std::optional<Dialect> dialect = dialect_of(target);
  return dialect ? refusals_of(launch, *dialect) : planner::refusals_of(launch);
}

std::string launch_text(const Launch& launch, std::string_view target) {
  const std::optional<Dialect> dialect = dialect_of(target);
  if (const std::vector<std::string> refusals = refusals_of(launch, target); !refusals.empty())
    config_error("{} can't run this: {}", target, refusals.front());
  return dialect ? script_text(launch, *dialect) : planner::config_text(launch);
}

std::vector<observe::SaidLaunch> said_to_all(const Launch& launch) {
  std::vector<observe::SaidLaunch> said;
  for (const std::string& target : emit_targets()) {
    const std::vector<std::string> refusals = refusals_of(launch, target);
    said.push_back(
        {target, refusals.empty() ? launch_text(launch, target) : "", refusals.empty() ? "" : refusals.front()});
  }
  return said;
}

}  // namespace heddle::advisor

#include "heddle/search/launch/emit.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::search {

const std::vector<std::string>& emit_targets() {
  static const std::vector<std::string> names{"heddle", "megatron", "mindspeed"};
  return names;
}

std::vector<std::string> refusals_of(const Launch& launch, std::string_view target) {
  // What makes the job itself impossible comes first.
  if (const std::string reason = estimate(launch.job).reason; !reason.empty()) return {reason};
  if (const std::string_view reason = misfit_of(launch.job); !reason.empty()) return {std::string(reason)};
  if (target == "heddle" && heddle_backend(launch.job.device).empty())
    return {fmt::format("Heddle has no backend for {}", launch.job.device.name)};
  if (target == "heddle") return heddle_refusals(launch);
  if (target == "megatron") return script_refusals(launch, Dialect::megatron);
  if (target == "mindspeed") return script_refusals(launch, Dialect::mindspeed);
  config_error("'{}' is no target, accepted: {}{}", target.substr(0, 40), fmt::join(emit_targets(), ", "),
               did_you_mean(target, emit_targets()));
}

std::string emit(const Launch& launch, Dialect dialect) {
  const std::string_view target = dialect == Dialect::megatron ? "megatron" : "mindspeed";
  if (const std::vector<std::string> refusals = refusals_of(launch, target); !refusals.empty())
    config_error("{} can't run this: {}", target, refusals.front());
  return script_text(launch, dialect);
}

}  // namespace heddle::search

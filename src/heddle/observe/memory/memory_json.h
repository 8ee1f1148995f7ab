// Memory over a step as JSON: for scripts, and from rank to rank.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "heddle/simulate/memory_log.h"

namespace heddle::observe {

nlohmann::ordered_json json_of(const simulate::MemoryCurve& curve);
/// Reads back the result of json_of.
simulate::MemoryCurve memory_curve_of(const nlohmann::ordered_json& json);

}  // namespace heddle::observe

// A plan that was searched for, as text for the program that is to run it.
#pragma once

#include <string>
#include <string_view>

#include "heddle/search/launch/emit.h"

namespace heddle::planner {

/// A configuration of Heddle as `heddle train` and `heddle inspect` read it, or another trainer's script.
/// ConfigError with the first refusal, or for an unknown target.
std::string launch_text(const search::Launch& launch, std::string_view target);

}  // namespace heddle::planner

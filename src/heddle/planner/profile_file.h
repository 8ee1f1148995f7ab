// A machine's profile as a file (JSON): what `heddle profile` writes and `heddle simulate` reads.
#pragma once

#include <string>

#include "heddle/cost/machine_profile.h"

namespace heddle::planner {

inline constexpr int kProfileVersion = 1;

std::string profile_text(const cost::MachineProfile& profile);
/// ConfigError, one line that begins with `place`, for whatever is not a profile of this version.
cost::MachineProfile parse_profile(const std::string& text, const std::string& place);
cost::MachineProfile read_profile(const std::string& path);

}  // namespace heddle::planner

// A user's own launch script with another plan in it: his lines stay as they are, flags that the plan has otherwise
// go out of them, and what takes their place stands in one block before the command and at its end.
#pragma once

#include <string>
#include <string_view>

#include "heddle/search/launch/launch_script.h"

namespace heddle::search {

/// `script` is what was read from `text`. ConfigError naming the flag where the text can't be changed so that it
/// reads as `plan`: a flag that has to go and is not written out, but comes from a file or a branch.
std::string rewritten(std::string_view text, std::string_view name, const ScriptContext& context,
                      const LaunchScript& script, const Launch& plan);

}  // namespace heddle::search

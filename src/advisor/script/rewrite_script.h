// Puts another plan into a user's own launch script. Its lines stay as they are, but lose the flags that the plan
// has otherwise. The replacements stand in one block before the command and at its end.
#pragma once

#include <string>
#include <string_view>

#include "advisor/script/launch_script.h"

namespace heddle::advisor {

/// `script` is what was read from `text`. Assignments of variables that the context gives get the given values.
/// ConfigError naming the flag where the text can't be changed so that it reads as `plan`. Such are a flag that has
/// to go and comes from a file or a branch, and a command in a file or string, to which nothing can be added.
std::string rewritten(std::string_view text, std::string_view name, const ScriptContext& context,
                      const LaunchScript& script, const Launch& plan);

}  // namespace heddle::advisor

// Commands of the shell itself that change nothing but its state.
#pragma once

#include <optional>

#include "advisor/shell/state.h"
#include "advisor/shell/syntax.h"

namespace heddle::advisor::shell {

/// Runs such a command of expanded words and returns its status; nullopt: it is another one.
std::optional<Truth> run_builtin(State& state, const Node& n, const Values& words);

}  // namespace heddle::advisor::shell

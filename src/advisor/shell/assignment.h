// Assignments of a script: NAME=text, NAME+=text, NAME=(list), NAME[index]=text.
#pragma once

#include <optional>

#include "advisor/shell/state.h"
#include "advisor/shell/syntax.h"

namespace heddle::advisor::shell {

/// Assigns. A name that is given from outside keeps its value; the result says where the assignment stands.
std::optional<Overridden> assign(State& state, const Node& n, const Assignment& a);

}  // namespace heddle::advisor::shell

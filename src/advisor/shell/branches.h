// Variables of a script behind a branch of which no one can say whether it is taken.
#pragma once

#include "advisor/shell/state.h"

namespace heddle::advisor::shell {

using Variables = std::map<std::string, Values>;

/// Sets in `state`, whose variables are those before the branch, what all alternatives agree on. `after`: the
/// variables behind each. Another value is unknown. Returns the variables to which alternatives only add flags:
/// they stay as they were.
std::vector<std::string> agreed(State& state, int line, const std::string& doubt, const Variables& before,
                                const std::vector<Variables>& after);

}  // namespace heddle::advisor::shell

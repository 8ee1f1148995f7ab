// Evaluates test, [ and [[: yes, no, or unknown where it depends on a file or an unknown value.
#pragma once

#include "advisor/shell/state.h"

namespace heddle::advisor::shell {

/// Truth of the words between [ and ], or behind test, expanded.
Truth truth_of_words(State& state, const Values& words, int line);
/// Truth of the text between [[ and ]].
Truth truth_of_text(State& state, std::string_view text, int line);

}  // namespace heddle::advisor::shell

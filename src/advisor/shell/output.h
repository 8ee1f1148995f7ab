// Output of commands where it is known without running anything: echo, printf, pwd, dirname, basename, seq, expr,
// cat of a here-document.
#pragma once

#include <optional>
#include <string>

#include "advisor/shell/state.h"
#include "advisor/shell/syntax.h"

namespace heddle::advisor::shell {

/// The output of a command of expanded words in a folder; nullopt where it is another command's.
std::optional<std::string> printed_by(State& state, const Node& n, const Values& words, const std::string& folder);

/// Returns what printf makes of a format and values.
std::string printed(State& state, const std::string& format, const Values& values, int line);

/// The folder of a path: "a" of "a/b", "." of "b".
std::string folder_of(const std::string& path);

}  // namespace heddle::advisor::shell

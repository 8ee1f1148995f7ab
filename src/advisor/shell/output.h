// Output of $(…) where it is known without running anything: echo, printf, pwd, dirname, basename, seq, cat of a
// here-document.
#pragma once

#include <optional>
#include <string>

#include "advisor/shell/state.h"
#include "advisor/shell/syntax.h"

namespace heddle::advisor::shell {

/// nullopt where it is another command's.
std::optional<std::string> output_of(State& state, const Node& command, std::string& folder);

/// The first word of the first command that `output_of` does not know, as it stands.
std::string command_name(const Node& command);

/// The folder of a path: "a" of "a/b", "." of "b".
std::string folder_of(const std::string& path);

}  // namespace heddle::advisor::shell

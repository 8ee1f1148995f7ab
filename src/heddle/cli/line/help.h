// What `heddle` and `heddle COMMAND --help` print.
#pragma once

#include <string>

#include "heddle/cli/command.h"

namespace heddle::cli {

/// Every command in a line.
std::string welcome_text(const Commands& all, int columns);
/// How a command is called and what it takes, no line longer than `columns`.
std::string help_text(const Command& command, int columns);
/// "heddle 0.1.0 (commit 1234abc of 2026-01-31; Release, GCC 12.2.0)"
std::string version_text();

}  // namespace heddle::cli

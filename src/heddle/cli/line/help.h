// Text that `heddle` and `heddle COMMAND --help` print.
#pragma once

#include <string>

#include "heddle/cli/command.h"

namespace heddle::cli {

/// Width of the text: as the terminal, and no wider than is good to read.
int help_columns();
/// Returns the command of that name; ConfigError with the nearest name, or all of them where none is near.
const Command& command_named(const Commands& all, const std::string& name);
/// The name of an option's value: "FILE", "N", "auto|on|off".
std::string value_name(const Option& option);
/// " CONFIG", " [TEXT]", " RUN…": an argument that stands by itself, as a call has it.
std::string call_of(const Option& option);
/// Returns every command in a line.
std::string welcome_text(const Commands& all, int columns);
/// Returns how a command is called and what it takes, no line longer than `columns`.
std::string help_text(const Command& command, int columns);

}  // namespace heddle::cli

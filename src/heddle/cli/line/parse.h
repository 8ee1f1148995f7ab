// Arguments of a subcommand into its options.
#pragma once

#include <string>
#include <vector>

#include "heddle/cli/command.h"

namespace heddle::cli {

/// Fills the command's options in: `--flag`, `--name value`, `--name=value`, and what stands by itself; behind `--`
/// all does. Counts are read by count_of, so that 500M is one. ConfigError, one line, for what can't be meant.
void parse(const Command& command, const std::vector<std::string>& arguments);

}  // namespace heddle::cli

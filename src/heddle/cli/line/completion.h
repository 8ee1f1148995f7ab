// Scripts that complete command lines of heddle in a shell, written from the rows of the commands.
#pragma once

#include <string>

#include "heddle/cli/command.h"

namespace heddle::cli {

std::string bash_completion(const Commands& all);
std::string zsh_completion(const Commands& all);
std::string fish_completion(const Commands& all);

/// Words that may stand in an option's place, blanks between; "" for what is completed as a file's name.
std::string words_of(const Option& option, const Commands& all);

/// Text between single quotes, as bash, zsh and fish read it.
std::string single_quoted(const std::string& text);

}  // namespace heddle::cli

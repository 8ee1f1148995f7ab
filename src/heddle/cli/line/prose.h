// Sentences on standard output.
#pragma once

#include <string>

namespace heddle::cli {

/// Prints the text and ends its line: folded at blanks on a terminal, in one line elsewhere.
void print_prose(const std::string& text);

}  // namespace heddle::cli

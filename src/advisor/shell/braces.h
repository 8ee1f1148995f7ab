// Braces of a word: "x{a,b}" is two words, "{1..4}" four.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::advisor::shell {

/// The words that braces outside of quotes make of one, still to be expanded; the word itself where it has none, or
/// where they would make too many.
std::vector<std::string> braced(std::string_view word);

}  // namespace heddle::advisor::shell

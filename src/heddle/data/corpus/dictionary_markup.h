// The text of dictionaries in the form that dictd serves (RFC 2229): entries of a headword at the line's beginning
// and indented paragraphs.
#pragma once

#include <string>
#include <string_view>

namespace heddle::data {

/// A paragraph without pronunciations (between backslashes), etymologies and other remarks in brackets, subjects in
/// angle brackets and the braces of references; letters with accents, which are in brackets too, lose the accent.
std::string dictionary_prose(std::string_view paragraph);

/// Whether the entry of this headword tells of the dictionary itself.
bool is_about_dictionary(std::string_view headword);

}  // namespace heddle::data

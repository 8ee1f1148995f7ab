// Text from outside (names, values and lines of files, arguments) as it may stand in a message.
//
// It spells out what a terminal would obey or a reader could not see. These are control bytes, C1 controls, marks
// that turn the direction of writing, and bytes that are no UTF-8. All else stays as it is.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

/// Escapes to one line: "\n", "\x1b", "\u009b". Longer texts than `most_bytes` are cut at a letter and end with
/// "…".
std::string escaped(std::string_view text, size_t most_bytes = std::string_view::npos);

/// The found text, as part of a message: cut after 60 bytes.
inline std::string shown(std::string_view text) { return escaped(text, 60); }

/// Escapes as `escaped` for a message that may have several lines: ends of lines stay.
std::string escaped_lines(std::string_view text);

}  // namespace heddle

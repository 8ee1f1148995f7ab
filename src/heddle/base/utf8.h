// UTF-8, taken apart when nobody vouches for it; the regex engine may trust its subject only once it was checked.
//
// Valid means the Unicode standard's table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle {

struct Letter {
  uint32_t code = 0xfffd;  // U+FFFD for a byte that begins no valid sequence
  uint32_t bytes = 1;
  bool valid = false;
};

/// The first letter of a text that is not empty.
Letter first_letter(std::string_view text);

/// C0 and C1 control codes and DEL.
constexpr bool is_control(uint32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

/// The length of the longest valid prefix of `text` that ends at a character's end.
size_t valid_utf8_prefix(std::string_view text);

inline bool is_valid_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }

/// `text` with each maximal run of one broken character replaced by U+FFFD, as Python and browsers do.
std::string replace_invalid_utf8(std::string_view text);

/// Appends the character; `code_point` must be a Unicode scalar value.
void append_utf8(std::string& text, uint32_t code_point);

/// Reads the character at `position` of valid UTF-8 and moves `position` past it.
uint32_t next_code_point(std::string_view text, size_t& position);

}  // namespace heddle

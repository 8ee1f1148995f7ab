// Taking UTF-8 text apart, letter by letter, when nobody vouches for it.
#pragma once

#include <cstdint>
#include <string_view>

namespace heddle {

struct Letter {
  uint32_t code = 0xfffd;  // U+FFFD for a byte that begins no valid sequence
  uint32_t bytes = 1;
  bool valid = false;
};

/// The first letter of a text that is not empty. Overlong forms, surrogates and codes past U+10FFFF are invalid.
Letter first_letter(std::string_view text);

/// C0 and C1 control codes and DEL.
constexpr bool is_control(uint32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

}  // namespace heddle

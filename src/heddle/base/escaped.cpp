#include "heddle/base/escaped.h"

#include <fmt/format.h>

#include "heddle/base/utf8.h"

namespace heddle {

namespace {

// Line and paragraph separators, and marks by which text shows in another order than it is read.
bool is_hidden(uint32_t code) {
  return (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0x200e ||
         code == 0x200f || code == 0x61c || code == 0xfeff;
}

void append(std::string& out, std::string_view text, const Letter& letter) {
  if (!letter.valid) {
    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
  } else if (letter.code == '\n') {
    out += "\\n";
  } else if (letter.code == '\t') {
    out += "\\t";
  } else if (letter.code < 0x80 && is_control(letter.code)) {
    out += fmt::format("\\x{:02x}", letter.code);
  } else if (is_control(letter.code) || is_hidden(letter.code)) {
    out += fmt::format("\\u{:04x}", letter.code);
  } else {
    out += text.substr(0, letter.bytes);
  }
}

}  // namespace

std::string escaped(std::string_view text, size_t most_bytes) {
  std::string out;
  size_t read = 0;
  while (read < text.size()) {
    const Letter letter = first_letter(text.substr(read));
    if (read + letter.bytes > most_bytes) return out + "…";
    append(out, text.substr(read), letter);
    read += letter.bytes;
  }
  return out;
}

std::string escaped_lines(std::string_view text) {
  std::string out;
  for (;;) {
    const size_t end = text.find('\n');
    out += escaped(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

}  // namespace heddle

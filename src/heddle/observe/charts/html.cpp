#include "heddle/observe/charts/html.h"

#include <fmt/format.h>

#include "heddle/base/utf8.h"

namespace heddle::observe {
namespace {

template <class Escape>
std::string escaped(std::string_view text, Escape&& escape) {
  std::string out;
  out.reserve(text.size() + text.size() / 16);
  while (!text.empty()) {
    const Letter letter = first_letter(text);
    if (!letter.valid) {
      out += "\ufffd";
    } else if (!escape(out, letter.code)) {
      out += text.substr(0, letter.bytes);
    }
    text.remove_prefix(letter.bytes);
  }
  return out;
}

}  // namespace

std::string escape_html(std::string_view text) {
  return escaped(text, [](std::string& out, uint32_t code) {
    switch (code) {
      case '&': out += "&amp;"; return true;
      case '<': out += "&lt;"; return true;
      case '>': out += "&gt;"; return true;
      case '"': out += "&quot;"; return true;
      case '\'': out += "&#39;"; return true;
      case '\n':
      case '\t': return false;
      default: return is_control(code);
    }
  });
}

std::string escape_breakable(std::string_view name) {
  std::string text;
  for (const char letter : escape_html(name)) {
    text += letter;
    if (letter == '.' || letter == '_') text += "<wbr>";
  }
  return text;
}

std::string json_string(std::string_view text) {
  return '"' +
         escaped(text,
                 [](std::string& out, uint32_t code) {
                   const bool special = code == '"' || code == '\\' || code == '<' || code == '>' || code == '&';
                   // U+2028 and U+2029 end a line in old readings of script.
                   if (!special && !is_control(code) && code != 0x2028 && code != 0x2029) return false;
                   out += fmt::format("\\u{:04x}", code);
                   return true;
                 }) +
         '"';
}

}  // namespace heddle::observe

#include "heddle/data/corpus/markup/entities.h"

#include <array>
#include <charconv>
#include <cstdint>

#include "heddle/base/utf8.h"

namespace heddle::data::markup {

void append_entity(std::string_view name, std::string& out) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 18> kNamed{{
      {"amp", "&"},
      {"lt", "<"},
      {"gt", ">"},
      {"quot", "\""},
      {"apos", "'"},
      {"nbsp", " "},
      {"mdash", "—"},
      {"ndash", "–"},
      {"hellip", "…"},
      {"lsquo", "‘"},
      {"rsquo", "’"},
      {"ldquo", "“"},
      {"rdquo", "”"},
      {"copy", "©"},
      {"reg", "®"},
      {"times", "×"},
      {"bull", "•"},
      {"trade", "™"},
  }};
  if (name.size() > 1 && name[0] == '#') {
    const bool hex = name[1] == 'x' || name[1] == 'X';
    const std::string_view digits = name.substr(hex ? 2 : 1);
    uint32_t code = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, hex ? 16 : 10);
    const bool whole = error == std::errc() && end == digits.data() + digits.size();
    if (whole && code > 0 && code < 0x110000 && (code < 0xd800 || code >= 0xe000)) {
      append_utf8(out, code == 0xa0 ? ' ' : code);  // a space that doesn't break is a space
      return;
    }
  }
  for (const auto& [known, text] : kNamed) {
    if (known == name) {
      out += text;
      return;
    }
  }
  out += '&';
  out += name;
  out += ';';
}

}  // namespace heddle::data::markup

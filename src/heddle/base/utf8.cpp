#include "heddle/base/utf8.h"

#include <cstring>

namespace heddle {
namespace {

// The length of the valid character at `text[0]`, or 0; `good` gets how many leading bytes belong to a valid start.
size_t character_length(const uint8_t* text, size_t size, size_t& good) {
  good = 1;
  const uint8_t lead = text[0];
  if (lead < 0x80) return 1;
  size_t length = 0;
  uint8_t low = 0x80, high = 0xbf;  // range of the second byte
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if (i >= size || text[i] < low || text[i] > high) return 0;
    good = i + 1;
    low = 0x80;
    high = 0xbf;
  }
  return length;
}

}  // namespace

Letter first_letter(std::string_view text) {
  size_t good, end = 0;
  const size_t length = character_length(reinterpret_cast<const uint8_t*>(text.data()), text.size(), good);
  if (length == 0) return {};
  return {next_code_point(text, end), static_cast<uint32_t>(length), true};
}

size_t valid_utf8_prefix(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  size_t i = 0;
  while (i < text.size()) {
    if (i + 8 <= text.size()) {
      uint64_t eight;
      std::memcpy(&eight, bytes + i, 8);
      if ((eight & 0x8080808080808080ull) == 0) {
        i += 8;
        continue;
      }
    }
    size_t good;
    const size_t length = character_length(bytes + i, text.size() - i, good);
    if (length == 0) return i;
    i += length;
  }
  return i;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const size_t valid = valid_utf8_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return out;
    size_t good;
    character_length(reinterpret_cast<const uint8_t*>(text.data()), text.size(), good);
    out += "\xef\xbf\xbd";
    text.remove_prefix(good);
  }
}

void append_utf8(std::string& text, uint32_t code_point) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xc0 | code_point >> 6);
    put(0x80 | (code_point & 0x3f));
  } else if (code_point < 0x10000) {
    put(0xe0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3f));
    put(0x80 | (code_point & 0x3f));
  } else {
    put(0xf0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3f));
    put(0x80 | (code_point >> 6 & 0x3f));
    put(0x80 | (code_point & 0x3f));
  }
}

uint32_t next_code_point(std::string_view text, size_t& position) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[position + i])); };
  const uint32_t lead = byte(0);
  uint32_t code_point = lead;
  size_t length = 1;
  if (lead >= 0xf0) {
    code_point = (lead & 7) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
    length = 4;
  } else if (lead >= 0xe0) {
    code_point = (lead & 15) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    length = 3;
  } else if (lead >= 0x80) {
    code_point = (lead & 31) << 6 | (byte(1) & 0x3f);
    length = 2;
  }
  position += length;
  return code_point;
}

}  // namespace heddle

#include "heddle/data/tokenizer/byte_alphabet.h"

#include <array>
#include <unordered_map>

#include "heddle/base/utf8.h"

namespace heddle::data::byte_alphabet {
namespace {

struct ByteAlphabet {
  std::array<std::string, 256> character;
  std::unordered_map<uint32_t, uint8_t> byte;

  ByteAlphabet() {
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      const uint32_t code_point = prints ? b : next++;
      append_utf8(character[b], code_point);
      byte[code_point] = static_cast<uint8_t>(b);
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet value;
  return value;
}

}  // namespace

bool to_bytes(std::string_view text, std::string& bytes) {
  bytes.clear();
  for (size_t at = 0; at < text.size();) {
    const auto found = alphabet().byte.find(next_code_point(text, at));
    if (found == alphabet().byte.end()) return false;
    bytes.push_back(static_cast<char>(found->second));
  }
  return true;
}

std::string of_bytes(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += alphabet().character[static_cast<uint8_t>(c)];
  return text;
}

}  // namespace heddle::data::byte_alphabet

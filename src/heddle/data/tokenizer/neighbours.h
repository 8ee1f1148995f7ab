// The characters that stand beside each other in tokens. No token reaches across two that do so in none, so a text
// falls apart there, and each part is joined by itself without any other outcome. The parts are short, and most of
// them were met before.
//
// What is kept may say of a few pairs that they stand together though they don't: such a text stays whole.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

namespace heddle::data {

class Neighbours {
 public:
  /// The characters of a token, which may begin and end within one where tokens are of bytes.
  void note(std::string_view token);
  /// Called once all tokens are noted.
  void index();

  /// True if a token may hold the end of the character `before` and the beginning of the character `behind`.
  bool stand_together(std::string_view before, std::string_view behind) const {
    const auto last = static_cast<uint8_t>(before.back()), first = static_cast<uint8_t>(behind.front());
    if ((last | first) < 0x80) return ascii_.test(size_t{last} * 128 + first);
    if (cut_before_.test(size_t{last} * 256 + first)) return true;
    const uint64_t left = packed(before);
    return noted(key(left, packed(behind))) || noted(key(left, packed(behind.substr(0, 1))));
  }

 private:
  static uint64_t packed(std::string_view character);
  static uint64_t key(uint64_t left, uint64_t right);
  bool noted(uint64_t key) const { return (filter_[(key & mask_) >> 6] >> (key & 63) & 1) != 0; }

  std::bitset<128 * 128> ascii_;
  std::bitset<256 * 256>
      cut_before_;                // last byte of a character that a token begins within, and the byte behind it
  std::vector<uint64_t> keys_;    // of whole characters and what stands behind: a whole one, or a first byte
  std::vector<uint64_t> filter_;  // a bit where a key falls
  uint64_t mask_ = 0;
};

/// The length of the character at `at`, in valid UTF-8; elsewhere some length that stays within the text.
inline size_t character_bytes(std::string_view text, size_t at) {
  const auto byte = static_cast<uint8_t>(text[at]);
  const size_t bytes = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
  return bytes < text.size() - at ? bytes : text.size() - at;
}

}  // namespace heddle::data

#include "heddle/data/tokenizer/neighbours.h"

#include <bit>

#include "heddle/base/hash.h"

namespace heddle::data {
namespace {

constexpr size_t kBitsAKey = 32;  // so that one pair in some thirty that stand in no token seems to

size_t whole_bytes(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

}  // namespace

uint64_t Neighbours::packed(std::string_view character) {
  uint64_t bytes = 0;
  for (const char c : character) bytes = bytes << 8 | static_cast<uint8_t>(c);
  return bytes;
}

uint64_t Neighbours::key(uint64_t left, uint64_t right) { return mix_bits(left << 32 | right); }

void Neighbours::note(std::string_view token) {
  size_t at = 0;
  while (at < token.size() && (token[at] & 0xc0) == 0x80) ++at;  // the end of a character
  if (at > 0 && at < token.size()) {
    cut_before_.set(size_t{static_cast<uint8_t>(token[at - 1])} * 256 + static_cast<uint8_t>(token[at]));
  }
  std::string_view before;
  while (at < token.size()) {
    const bool whole = whole_bytes(token[at]) <= token.size() - at;
    const std::string_view character = token.substr(at, whole ? whole_bytes(token[at]) : 1);
    if (!before.empty() && (before[0] & 0x80) == 0 && (character[0] & 0x80) == 0) {
      ascii_.set(static_cast<size_t>(before[0]) * 128 + static_cast<size_t>(character[0]));
    } else if (!before.empty()) {
      keys_.push_back(key(packed(before), packed(character)));
    }
    if (!whole) return;
    before = character;
    at += character.size();
  }
}

void Neighbours::index() {
  const size_t bits = std::bit_ceil(kBitsAKey * keys_.size() + 64);
  mask_ = bits - 1;
  filter_.assign(bits / 64, 0);
  for (const uint64_t key : keys_) filter_[(key & mask_) >> 6] |= uint64_t{1} << (key & 63);
  keys_ = {};
}

}  // namespace heddle::data

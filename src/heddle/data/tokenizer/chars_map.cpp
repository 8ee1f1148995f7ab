#include "heddle/data/tokenizer/chars_map.h"

#include <algorithm>

#include "heddle/base/utf8.h"

namespace heddle::data {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// A unit of Darts-clone's double array.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7fffffff; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000ff; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

}  // namespace

CharsMap::CharsMap(const CharsMapStep& step) : step_(step) {
  for (const std::string& kept : step_.kept) {
    longest_kept_ = std::max(longest_kept_, kept.size());
    begins_kept_[static_cast<uint8_t>(kept[0])] = true;
  }
  std::sort(step_.kept.begin(), step_.kept.end());
}

std::string_view CharsMap::replacement_of_first(std::string_view text, size_t& taken) const {
  const bool may_be_kept = begins_kept_[static_cast<uint8_t>(text[0])];
  for (size_t size = may_be_kept ? std::min(longest_kept_, text.size()) : 0; size > 0; --size) {
    if (std::binary_search(step_.kept.begin(), step_.kept.end(), text.substr(0, size))) {
      taken = size;
      return text.substr(0, size);
    }
  }
  taken = 0;
  size_t value = 0;
  const std::vector<uint32_t>& trie = step_.trie;
  if (!trie.empty()) {
    uint64_t node = offset_of(trie[0]);
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      node ^= byte;
      if (node >= trie.size()) break;
      const uint32_t unit = trie[node];
      if (label_of(unit) != byte) break;
      node ^= offset_of(unit);
      if (node >= trie.size()) break;
      if (has_leaf(unit)) {
        taken = i + 1;
        value = value_of(trie[node]);
      }
    }
  }
  if (taken > 0 && value < step_.replacements.size()) return step_.replacements.c_str() + value;
  const Letter letter = first_letter(text);
  taken = letter.bytes;
  return letter.valid ? text.substr(0, taken) : kReplacement;
}

void CharsMap::apply(std::string_view text, std::string& out) const {
  out.clear();
  size_t taken = 0;
  while (step_.remove_extra_spaces && !text.empty() && replacement_of_first(text, taken) == " ") {
    text.remove_prefix(taken);
  }
  if (text.empty()) return;
  const std::string_view space = step_.mark_spaces ? kSpaceMark : " ";
  if (step_.dummy_prefix && !step_.dummy_suffix) out += space;
  bool after_space = step_.remove_extra_spaces;
  while (!text.empty()) {
    std::string_view part = replacement_of_first(text, taken);
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    for (const char c : part) {
      if (c == ' ') {
        out += space;
      } else {
        out += c;
      }
    }
    if (!part.empty()) after_space = part.ends_with(' ');
    text.remove_prefix(taken);
    if (!step_.remove_extra_spaces) after_space = false;
  }
  while (step_.remove_extra_spaces && out.ends_with(space)) out.resize(out.size() - space.size());
  if (step_.dummy_suffix && step_.dummy_prefix) out += space;
}

}  // namespace heddle::data

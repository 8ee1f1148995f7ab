// Ids of words met before. Open addressing over one arena of bytes and one of ids; emptied when full, so that the
// memory is bounded whatever the text.
#pragma once

#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

class WordCache {
 public:
  static constexpr size_t kMostWordBytes = 64;

  WordCache() : slots_(kSlots) {}

  /// The ids of the word, or null.
  const TokenId* find(std::string_view word, uint64_t hash, uint32_t& count) const {
    for (size_t at = hash & (kSlots - 1);; at = (at + 1) & (kSlots - 1)) {
      const Slot& slot = slots_[at];
      if (slot.word_bytes == 0) return nullptr;
      if (slot.hash == hash && slot.word_bytes == word.size() &&
          std::memcmp(bytes_.data() + slot.word_begin, word.data(), word.size()) == 0) {
        count = slot.ids_count;
        return ids_.data() + slot.ids_begin;
      }
    }
  }

  void add(std::string_view word, uint64_t hash, std::span<const TokenId> ids) {
    if (used_ == kSlots / 2) {
      std::fill(slots_.begin(), slots_.end(), Slot{});
      bytes_.clear();
      ids_.clear();
      used_ = 0;
    }
    size_t at = hash & (kSlots - 1);
    while (slots_[at].word_bytes != 0) at = (at + 1) & (kSlots - 1);
    slots_[at] = {hash, static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(ids_.size()),
                  static_cast<uint32_t>(word.size()), static_cast<uint32_t>(ids.size())};
    bytes_.insert(bytes_.end(), word.begin(), word.end());
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    ++used_;
  }

 private:
  static constexpr size_t kSlots = 1 << 17;
  struct Slot {
    uint64_t hash = 0;
    uint32_t word_begin = 0, ids_begin = 0, word_bytes = 0, ids_count = 0;
  };
  std::vector<Slot> slots_;
  std::vector<char> bytes_;
  std::vector<TokenId> ids_;
  size_t used_ = 0;
};

}  // namespace heddle::data

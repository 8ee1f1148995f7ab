// Learns a byte-level BPE vocabulary from text: count words once, then merge the commonest pair again and again.
//
// A merge touches only the words that hold its pair, found by an inverted index. The next pair comes from a heap of
// counts corrected when popped. So training takes time near linear in the number of different words. Ties go to the
// smaller (left, right) ids: the same text gives the same vocabulary on every machine.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "heddle/data/tokenizer/tokenizer.h"

namespace heddle::data {

/// Counts of each word's occurrences. Memory is bounded: above kMostWords different words the rarest are forgotten.
class WordCounts {
 public:
  static constexpr size_t kMostWords = 4'000'000;
  static constexpr size_t kMostWordBytes = 256;  // longer words hold no merges worth learning

  explicit WordCounts(const char* split = kSplitWords);
  /// Counts the words of `text` (invalid UTF-8 replaced).
  void add(std::string_view text);

  struct Word {
    uint64_t hash;
    uint64_t begin;  // into the bytes
    uint32_t size_bytes;
    int64_t count;
  };
  const std::vector<Word>& words() const { return words_; }
  std::string_view bytes(const Word& word) const { return {bytes_.data() + word.begin, word.size_bytes}; }
  const std::string& split() const { return split_; }

 private:
  void count(std::string_view word);
  void place_words(size_t slots);
  void forget_rare();

  std::string split_;
  SplitPattern pattern_;
  SplitPattern::Scratch scratch_;
  std::vector<Word> words_;  // in order of first sight
  std::vector<char> bytes_;
  std::vector<uint32_t> slots_;  // open addressing: index of a word + 1
};

/// A tokenizer of `vocabulary` tokens: 256 bytes, merges, and <|endoftext|> last. Fewer if no pair occurs twice any
/// more. ConfigError if `vocabulary` is not within 257 and kMostTokens.
TokenizerSpec train_tokenizer(const WordCounts& counts, int64_t vocabulary);

}  // namespace heddle::data

// Byte-pair encoding: the symbols of a piece are joined pair by pair, the pair of the lowest rank first, leftmost
// first among equals.
//
// Where the symbols are characters and no pre-tokenizer cuts the text, a piece may be a whole document. No token
// reaches across two characters that stand beside each other in no token, so such a piece falls apart there without
// any other outcome; what is left is short, and most of it was met before.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

/// Ids by the bytes of tokens; views into a spec.
using TokenIds = std::unordered_map<std::string_view, TokenId>;

class BytePairs {
 public:
  /// What joining writes; one a thread.
  struct Scratch {
    struct Symbol {
      TokenId id;
      int32_t before, after;
    };
    struct Candidate {
      int32_t rank, position;
      TokenId left, right, joined;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  /// `ids` outlives this. ConfigError if a merge joins to no token or is there twice.
  BytePairs(const TokenizerSpec& spec, const TokenIds& ids, const std::string& place);

  /// Appends the ids of a piece.
  void join(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const;
  /// Of characters: where the first part of a piece ends that nothing joins to what follows.
  size_t first_part(std::string_view piece) const;
  /// The token of one byte, where bytes are the symbols.
  TokenId of_byte(uint8_t byte) const { return byte_ids_[byte]; }

 private:
  struct Merge {
    uint64_t pair = ~uint64_t{0};
    int32_t rank = 0;
    TokenId joined = 0;
  };
  void index(std::vector<Merge> merges);
  void add_listed(const TokenizerSpec& spec, std::vector<Merge>& merges, const std::string& place) const;
  void add_scored(const TokenizerSpec& spec, std::vector<Merge>& merges, const std::string& place) const;
  void note_neighbours(std::string_view token);
  const Merge* find(TokenId left, TokenId right) const;
  TokenId of_character(std::string_view character) const;
  void begin(std::string_view piece, std::vector<Scratch::Symbol>& symbols) const;

  const TokenIds& ids_;
  bool of_bytes_, fuse_unknown_;
  TokenId unknown_;
  std::vector<TokenId> byte_tokens_;
  std::array<TokenId, 256> byte_ids_{};
  std::vector<Merge> slots_;  // open addressing
  std::bitset<128 * 128> ascii_neighbours_;
  std::unordered_set<uint64_t> neighbours_;
};

}  // namespace heddle::data

// Byte-pair encoding: the symbols of a piece are joined pair by pair, the pair of the lowest rank first, leftmost
// first among equals.
//
// Where no pre-tokenizer cuts the text a piece may be a whole document, and where a language puts no spaces between
// words a whole sentence. Such a piece falls apart where no token reaches across (neighbours.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "heddle/data/tokenizer/neighbours.h"
#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

/// Ids by the bytes of tokens; views into a spec.
using TokenIds = std::unordered_map<std::string_view, TokenId>;

class BytePairs {
 public:
  /// Scratch of joining; one a thread.
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
    // The symbols that are left of a short piece, and of each what it and the next one join to.
    std::vector<TokenId> ids, joined;
    std::vector<int32_t> ranks;
  };

  /// `ids` outlives this. ConfigError if a merge joins to no token or is there twice.
  BytePairs(const TokenizerSpec& spec, const TokenIds& ids, const std::string& place);

  /// Appends the ids of a piece.
  void join(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const;
  /// The end of the first part of a piece that nothing joins to what follows.
  size_t first_part(std::string_view piece) const;
  /// The token of one byte, where bytes are the symbols; -1: it has none and is dropped.
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
  const Merge* find(TokenId left, TokenId right) const;
  TokenId of_character(std::string_view character) const;
  void begin(std::string_view piece, std::vector<Scratch::Symbol>& symbols) const;
  void join_short(Scratch& scratch, std::vector<TokenId>& ids) const;
  void join_long(Scratch& scratch, std::vector<TokenId>& ids) const;

  const TokenIds& ids_;
  bool of_bytes_, fuse_unknown_, lacks_bytes_ = false;
  TokenId unknown_;
  std::vector<TokenId> byte_tokens_;
  std::array<TokenId, 256> byte_ids_{};
  std::vector<Merge> slots_;  // open addressing
  Neighbours neighbours_;
};

}  // namespace heddle::data

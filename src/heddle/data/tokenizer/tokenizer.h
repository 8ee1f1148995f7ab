// Text to token ids and back, as a TokenizerSpec says: added tokens are found, text is normalized, cut into pieces,
// and the symbols of each piece are joined into tokens.
//
// A Tokenizer is immutable and may be shared between threads; each thread encodes with its own Encoder.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "heddle/base/hash.h"
#include "heddle/data/tokenizer/byte_pairs.h"
#include "heddle/data/tokenizer/normalizer.h"
#include "heddle/data/tokenizer/pieces.h"
#include "heddle/data/tokenizer/split_pattern.h"
#include "heddle/data/tokenizer/tokenizer_spec.h"
#include "heddle/data/tokenizer/unigram.h"
#include "heddle/data/tokenizer/word_cache.h"

namespace heddle::data {

class Tokenizer {
 public:
  /// `place` names the spec's origin in messages. ConfigError if a byte has no token where bytes are the symbols,
  /// two ids have the same bytes, or a merge joins to no token.
  explicit Tokenizer(TokenizerSpec spec, const std::string& place = "tokenizer");
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// One more than the largest id.
  int32_t vocabulary() const { return vocabulary_; }
  /// The id of the token that ends a document: <|endoftext|> or the added token of such a meaning; -1 if none.
  TokenId end_of_text() const { return end_of_text_; }
  /// The text of ids. Ids outside the vocabulary give ConfigError; bytes that are no UTF-8 come back as they are,
  /// and so does a space that encoding put first.
  std::string decode(std::span<const TokenId> ids) const;
  /// The bytes that one id is decoded to, empty if it has none.
  std::string_view token_bytes(TokenId id) const;

  const TokenizerSpec& spec() const { return spec_; }

 private:
  friend class Encoder;
  // Contents that are found in a text as a whole, the longest at each place.
  struct WholeSearch {
    struct Found {
      TokenId id;
      bool lstrip, rstrip, special;
    };
    void add(const std::string& content, Found found);
    void sort();
    bool empty() const { return lengths.empty(); }
    const Found* at(std::string_view text, size_t position, size_t& length) const;

    bool others = false;            // some are not special
    std::array<bool, 256> first{};  // bytes some content begins with
    std::vector<bool> two;          // and two bytes, or one that is a content by itself and any other
    std::vector<size_t> lengths;    // of contents, longest first
    struct Hash {
      using is_transparent = void;
      size_t operator()(std::string_view text) const { return hash_bytes(text); }
    };
    std::unordered_map<std::string, Found, Hash, std::equal_to<>> by_content;
  };
  void index_added();

  TokenizerSpec spec_;
  TokenIds ids_;  // views into spec_.tokens
  Normalizer normalizer_;
  Pieces pieces_;
  std::optional<BytePairs> pairs_;
  std::optional<Unigram> unigram_;
  std::unordered_map<TokenId, std::string> decoded_;  // of ids whose text is not that of spec_.tokens
  WholeSearch added_first_, added_later_, whole_;
  int32_t vocabulary_ = 0;
  TokenId end_of_text_ = -1;
};

/// The added token that is called as published tokenizers call what ends a text; -1: there is none.
TokenId named_end_of_text(const TokenizerSpec& spec);

/// The reading of special tokens' contents in text: as those tokens, or as text like any other. Training data is
/// `plain`, so that no document can end itself. Added tokens that are not special (runs of spaces) are found
/// always.
enum class AddedTokens : uint8_t { plain, parse };

class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);

  /// Appends the ids of `text` to `ids`. What is no valid UTF-8 is first replaced by U+FFFD.
  void encode(std::string_view text, std::vector<TokenId>& ids, AddedTokens added = AddedTokens::plain);
  std::vector<TokenId> encode(std::string_view text, AddedTokens added = AddedTokens::plain);
  /// A document as training reads it: plain, between what the tokenizer begins and ends one with, and the
  /// end-of-text token last.
  void encode_document(std::string_view text, std::vector<TokenId>& ids);

 private:
  template <class Between>
  void around(const Tokenizer::WholeSearch& search, std::string_view text, AddedTokens added,
              std::vector<TokenId>& ids, const Between& between);
  void encode_segment(std::string_view text, bool at_start, AddedTokens added, std::vector<TokenId>& ids);
  void encode_piece(std::string_view piece, std::vector<TokenId>& ids);
  /// A piece, or a part of one that nothing joins to the rest.
  enum class Word : uint8_t { whole, part };
  void encode_word(std::string_view word, Word kind, std::vector<TokenId>& ids);
  void join(std::string_view word, Word kind, std::vector<TokenId>& ids);

  const Tokenizer& tokenizer_;
  SplitPattern::Scratch scratch_;
  Normalizer::Held held_;
  WordCache cache_;
  BytePairs::Scratch pairs_;
  Unigram::Scratch unigram_;
};

}  // namespace heddle::data

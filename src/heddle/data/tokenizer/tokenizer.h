// Byte-level byte-pair encoding: text to token ids and back.
//
// Text is cut into pieces by one or more regular expressions in order; the bytes of a piece are merged pair by
// pair, the pair learnt first going first, leftmost first among equals (Sennrich et al. 2016; Radford et al. 2019).
// Since every byte is a token, every text has ids, and decoding gives the text back.
//
// A Tokenizer is immutable and may be shared between threads; each thread encodes with its own Encoder.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "heddle/data/tokenizer/split_pattern.h"

namespace heddle::data {

using TokenId = int32_t;

inline constexpr std::string_view kEndOfText = "<|endoftext|>";
/// More ids than any published vocabulary has; a bound for what is read from files.
inline constexpr int64_t kMostTokens = 1 << 21;
inline constexpr size_t kMostTokenBytes = 4096;

/// How text is cut before merging: words with a leading mark or space, numbers by threes, line ends apart. Of the
/// family that GPT-4 and Llama 3 use.
inline constexpr const char* kSplitWords =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// GPT-2's own.
inline constexpr const char* kSplitWordsGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// A token that is found in text as a whole, before any splitting.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = true;
  bool normalized = false;  // searched after those that aren't
};

/// Everything that defines a tokenizer.
struct TokenizerSpec {
  std::vector<std::string> tokens;                  // the bytes of each id; empty where an id has none
  std::vector<std::pair<TokenId, TokenId>> merges;  // in the order learnt
  std::vector<std::string> splits;                  // regular expressions, applied in order
  std::vector<std::string> split_places;            // where each stands, for messages; may be empty
  std::vector<AddedToken> added;
  bool add_prefix_space = false;  // puts a space before text that begins with none
  bool ignore_merges = false;     // a piece that is a token is that token, whatever the merges say
};

class Tokenizer {
 public:
  /// `place` names the spec's origin in messages. ConfigError if a byte has no token, two ids have the same bytes,
  /// or a merge joins to no token.
  explicit Tokenizer(TokenizerSpec spec, const std::string& place = "tokenizer");
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// One more than the largest id.
  int32_t vocabulary() const { return vocabulary_; }
  /// The id of the token that ends a document: <|endoftext|> or the added token of such a meaning; -1 if none.
  TokenId end_of_text() const { return end_of_text_; }
  /// The text of ids. Ids outside the vocabulary give ConfigError; bytes that are no UTF-8 come back as they are.
  std::string decode(std::span<const TokenId> ids) const;
  /// The bytes of one id, empty if it has none.
  std::string_view token_bytes(TokenId id) const;

  const TokenizerSpec& spec() const { return spec_; }

 private:
  friend class Encoder;
  struct Merge {
    int32_t rank;
    TokenId joined;
  };
  struct AddedSearch {
    std::array<bool, 256> first{};                             // bytes some content begins with
    std::vector<size_t> lengths;                               // of contents, longest first
    std::unordered_map<std::string_view, TokenId> by_content;  // views into spec_
  };
  void index_added(bool normalized, AddedSearch& search);

  TokenizerSpec spec_;
  std::vector<SplitPattern> splits_;
  std::array<TokenId, 256> byte_ids_{};
  std::unordered_map<uint64_t, Merge> merges_;                // (left << 32 | right) -> rank and result
  std::unordered_map<std::string_view, TokenId> ids_;         // views into spec_.tokens
  std::unordered_map<TokenId, std::string_view> added_text_;  // views into spec_.added
  AddedSearch added_first_, added_later_;
  int32_t vocabulary_ = 0;
  TokenId end_of_text_ = -1;
};

/// Whether the contents of added tokens found in text become those tokens, or are text like any other. Training
/// data is `plain`, so that no document can end itself.
enum class AddedTokens : uint8_t { plain, parse };

class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);
  ~Encoder();

  /// Appends the ids of `text` to `ids`. What is no valid UTF-8 is first replaced by U+FFFD.
  void encode(std::string_view text, std::vector<TokenId>& ids, AddedTokens added = AddedTokens::plain);
  std::vector<TokenId> encode(std::string_view text, AddedTokens added = AddedTokens::plain);

 private:
  class WordCache;
  void encode_around(const Tokenizer::AddedSearch& search, const Tokenizer::AddedSearch* later,
                     std::string_view text, std::vector<TokenId>& ids);
  void encode_segment(std::string_view text, std::vector<TokenId>& ids);
  void split(size_t level, std::string_view piece, std::vector<TokenId>& ids);
  void encode_word(std::string_view word, std::vector<TokenId>& ids);
  void merge(std::string_view word, std::vector<TokenId>& ids);

  struct Symbol {
    TokenId id;
    int32_t before, after;
  };
  struct Candidate {
    int32_t rank, position;
    TokenId left, right, joined;
  };
  const Tokenizer& tokenizer_;
  SplitPattern::Scratch scratch_;
  std::unique_ptr<WordCache> cache_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace heddle::data

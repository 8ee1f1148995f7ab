// All that defines a tokenizer, as its file says it: how text is rewritten, cut into pieces and joined into tokens.
//
// Three ways of joining:
//   merges    byte-pair encoding, the pairs listed in the order learnt (Sennrich et al. 2016); GPT-2,
//   tokenizer.json scores    byte-pair encoding in which two neighbours join when together they are a token, the
//   best score first,
//             leftmost first among equals; SentencePiece's and tiktoken's
//   unigram   the pieces whose scores add up highest (Kudo 2018)
// The first symbols are bytes, or characters, with the bytes of those that are no token (byte fallback).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heddle::data {

using TokenId = int32_t;

inline constexpr std::string_view kEndOfText = "<|endoftext|>";
/// More ids than any published vocabulary has; a bound for what is read from files.
inline constexpr int64_t kMostTokens = 1 << 21;
inline constexpr size_t kMostTokenBytes = 4096;
/// Stands for a space in vocabularies of characters.
inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

/// The cut of text before merging: words with a leading mark or space, numbers by threes, line ends apart. It is of
/// the family that GPT-4 and Llama 3 use.
inline constexpr const char* kSplitWords =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// GPT-2's own.
inline constexpr const char* kSplitWordsGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Qwen's own.
inline constexpr const char* kSplitWordsQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// A token that is found in text as a whole, before any splitting.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = true;
  bool normalized = false;  // searched in what the normalizer left, after those that aren't
  bool lstrip = false;      // takes the white space before it
  bool rstrip = false;      // and behind it
};

// ---- what rewrites the whole text, in order

enum class UnicodeForm : uint8_t { nfc, nfd, nfkc, nfkd };

struct ReplaceStep {
  std::string pattern;  // a regular expression
  std::string content;  // as it is
  std::string place;    // place of the pattern, for messages; may be empty
};

struct PrependStep {
  std::string text;  // before text that is not empty
};

/// SentencePiece's own: replaces the longest match of its map, byte by byte what is no UTF-8, and spaces.
struct CharsMapStep {
  std::vector<uint32_t> trie;       // a double array (Darts-clone); empty: no map
  std::string replacements;         // ended by zeros; a trie's value is a position
  std::vector<std::string> kept;    // left as they are
  bool dummy_prefix = true;         // a space before the text
  bool dummy_suffix = false;        // or behind it
  bool remove_extra_spaces = true;  // those at the ends, and repeated ones
  bool mark_spaces = true;
};

using NormalizerStep = std::variant<UnicodeForm, ReplaceStep, PrependStep, CharsMapStep>;

// ---- what cuts it into pieces, in order

struct SplitStep {
  /// The treatment of the matches.
  enum class Behavior : uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  std::string pattern;
  Behavior behavior = Behavior::isolated;
  bool invert = false;  // text between the matches is matched
  std::string place;
};

struct MetaspaceStep {
  enum class Prepend : uint8_t { always, first, never };
  std::string mark = std::string(kSpaceMark);
  Prepend prepend = Prepend::always;
  bool split = true;  // before each mark
};

/// A space before a piece that begins with none.
struct PrefixSpaceStep {};

/// Steps from here on see each byte as a letter of GPT-2's alphabet.
struct AlphabetStep {};

using PieceStep = std::variant<SplitStep, MetaspaceStep, PrefixSpaceStep, AlphabetStep>;

/// A split by `pattern` that leaves every match apart.
inline PieceStep split_at(std::string pattern, std::string place = "") {
  return SplitStep{std::move(pattern), SplitStep::Behavior::isolated, false, std::move(place)};
}

// ---- how a piece becomes tokens

enum class Joining : uint8_t { merges, scores, unigram };

struct TokenizerSpec {
  Joining joining = Joining::merges;
  bool of_bytes = true;                             // the first symbols; else characters
  std::vector<std::string> tokens;                  // the bytes of each id; empty where text holds none such
  std::vector<std::pair<TokenId, TokenId>> merges;  // in the order learnt
  std::vector<double> scores;                       // of each id: best first; a unigram's logarithms
  std::vector<TokenId> byte_tokens;                 // 256 that stand for what is no token, or none
  std::vector<std::string> whole;                   // tokens that are found first and joined to nothing
  TokenId unknown = -1;                             // stands for what is no token; -1: it is dropped
  bool fuse_unknown = false;                        // one for several in a row
  bool ignore_merges = false;                       // a piece that is a token is that token
  bool single_precision = false;                    // a unigram's sums, as SentencePiece has them
  std::vector<bool> user_defined;                   // ids that win over all others in a unigram; may be empty
  std::vector<NormalizerStep> normalizer;
  std::vector<PieceStep> steps;
  std::vector<AddedToken> added;
  std::vector<TokenId> before, after;  // tokens that a document begins and ends with
  bool marks_spaces = false;           // kSpaceMark is decoded as a space
  TokenId end_of_text = -1;            // -1: the added token whose name says so
};

}  // namespace heddle::data

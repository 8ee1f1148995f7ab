// Byte-level BPE: hand-checked merges, exact inverses, hostile and broken text, and the trainer against a slow one.
#include "heddle/data/tokenizer/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "heddle/base/utf8.h"
#include "heddle/data/tokenizer/tokenizer_train.h"

namespace heddle::data {
namespace {

TokenizerSpec bytes_only() {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) spec.tokens.emplace_back(1, static_cast<char>(byte));
  spec.steps = {split_at(kSplitWords)};
  return spec;
}

TokenizerSpec with_merges(const std::vector<std::pair<std::string, std::string>>& merges) {
  TokenizerSpec spec = bytes_only();
  const auto id = [&](const std::string& bytes) {
    return static_cast<TokenId>(std::find(spec.tokens.begin(), spec.tokens.end(), bytes) - spec.tokens.begin());
  };
  for (const auto& [left, right] : merges) {
    spec.merges.emplace_back(id(left), id(right));
    spec.tokens.push_back(left + right);
  }
  return spec;
}

// English-like text out of a small random vocabulary.
std::string random_text(uint64_t seed, int words) {
  const RandomKey key(seed);
  std::string text;
  for (int i = 0; i < words; ++i) {
    const auto rank = static_cast<uint64_t>(40.0 * std::pow(key.uniform(static_cast<uint64_t>(i)), 3.0));
    const RandomKey word = key.with(rank);
    for (uint64_t c = 0; c < 1 + word.bits(99) % 7; ++c) text += static_cast<char>('a' + word.bits(c) % 6);
    text += i % 11 == 10 ? ".\n" : " ";
  }
  return text;
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text,
                                AddedTokens added = AddedTokens::plain) {
  std::vector<std::string> out;
  for (const TokenId id : Encoder(tokenizer).encode(text, added)) out.emplace_back(tokenizer.token_bytes(id));
  return out;
}

using Pieces = std::vector<std::string>;

TEST(Utf8, AgreesWithTheStandard) {
  for (const char* good : {"", "plain", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_valid_utf8(good)) << good;
    EXPECT_EQ(replace_invalid_utf8(good), good);
  }
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc2", "\xe0\x9f\xbf", "\xed\xa0\x80",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "12345678\xe2\x82"}) {
    EXPECT_FALSE(is_valid_utf8(bad)) << bad;
    EXPECT_TRUE(is_valid_utf8(replace_invalid_utf8(bad)));
  }
  const std::string mark = "\xef\xbf\xbd";
  EXPECT_EQ(replace_invalid_utf8("a\xe2\x82z"), "a" + mark + "z");  // one broken character, one mark
  EXPECT_EQ(replace_invalid_utf8("\xed\xa0\x80"), mark + mark + mark);
  for (uint32_t code_point = 0; code_point < 0x110000; code_point += 7) {
    if (code_point >= 0xd800 && code_point < 0xe000) continue;
    std::string text;
    append_utf8(text, code_point);
    ASSERT_TRUE(is_valid_utf8(text));
    size_t at = 0;
    ASSERT_EQ(next_code_point(text, at), code_point);
    ASSERT_EQ(at, text.size());
  }
}

TEST(Tokenizer, MergesTheEarliestPairFirst) {
  const Tokenizer tokenizer(with_merges({{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"c", "d"}}));
  EXPECT_EQ(pieces(tokenizer, "abc"), (Pieces{"abc"}));
  EXPECT_EQ(pieces(tokenizer, "abd"), (Pieces{"ab", "d"}));
  EXPECT_EQ(pieces(tokenizer, "abcd"), (Pieces{"abc", "d"}));
  EXPECT_EQ(pieces(tokenizer, "cdcd"), (Pieces{"cd", "cd"}));
}

TEST(Tokenizer, MergesLeftmostAmongEquals) {
  const Tokenizer tokenizer(with_merges({{"a", "a"}}));
  EXPECT_EQ(pieces(tokenizer, "aaa"), (Pieces{"aa", "a"}));
  EXPECT_EQ(pieces(tokenizer, "aaaaa"), (Pieces{"aa", "aa", "a"}));
}

TEST(Tokenizer, NeverMergesAcrossPieces) {
  const Tokenizer tokenizer(with_merges({{"a", " "}, {" ", "b"}, {"1", "2"}, {"3", "4"}}));
  EXPECT_EQ(pieces(tokenizer, "a b"), (Pieces{"a", " b"}));
  EXPECT_EQ(pieces(tokenizer, "1234"), (Pieces{"12", "3", "4"}));  // digits go by threes: 123|4
}

TEST(Tokenizer, SplitsLikeItsFamily) {
  const SplitPattern pattern(kSplitWords, "test");
  SplitPattern::Scratch scratch;
  const std::string text = "I'LL say: it's 12345 o'clock\r\n\n  \"Déjà vu\"  end \t";
  Pieces found;
  size_t done = 0, begin = 0, end = 0;
  SplitPattern::Matches matches(pattern, text, scratch);
  while (matches.next(begin, end)) {
    EXPECT_EQ(begin, done);  // this pattern leaves no gaps
    found.push_back(text.substr(begin, end - begin));
    done = end;
  }
  EXPECT_EQ(found, (Pieces{"I",      "'LL",    " say", ":",   " it",  "'s",  " ",  "123", "45",   " o",
                           "'clock", "\r\n\n", " ",    " \"", "Déjà", " vu", "\"", " ",   " end", " \t"}));
}

TEST(Tokenizer, FindsAddedTokensOnlyWhenAsked) {
  TokenizerSpec spec = bytes_only();
  spec.added = {{300, "<|endoftext|>", true, false}, {301, "<|end", true, false}, {400, "zz", false, true}};
  const Tokenizer tokenizer(spec);
  EXPECT_EQ(tokenizer.vocabulary(), 401);
  EXPECT_EQ(tokenizer.end_of_text(), 300);
  Encoder encoder(tokenizer);
  EXPECT_EQ(encoder.encode("<|endoftext|>", AddedTokens::parse), (std::vector<TokenId>{300}));
  EXPECT_EQ(encoder.encode("<|endo", AddedTokens::parse), (std::vector<TokenId>{301, 'o'}));
  EXPECT_EQ(encoder.encode("azzz<|end", AddedTokens::parse), (std::vector<TokenId>{'a', 400, 'z', 301}));
  EXPECT_EQ(encoder.encode("<|endoftext|>").size(), 13u);
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{'a', 300, 400}), "a<|endoftext|>zz");
  EXPECT_THROW(tokenizer.decode(std::vector<TokenId>{401}), ConfigError);
  EXPECT_THROW(tokenizer.decode(std::vector<TokenId>{-1}), ConfigError);
}

TEST(Tokenizer, RefusesWhatIsNoVocabulary) {
  TokenizerSpec lacks_byte = bytes_only();
  lacks_byte.tokens['\t'].clear();
  EXPECT_THROW(Tokenizer{lacks_byte}, ConfigError);
  TokenizerSpec twice = bytes_only();
  twice.tokens.emplace_back("a");
  EXPECT_THROW(Tokenizer{twice}, ConfigError);
  TokenizerSpec nowhere = bytes_only();
  nowhere.merges.emplace_back('a', 'b');
  EXPECT_THROW(Tokenizer{nowhere}, ConfigError);
  TokenizerSpec outside = with_merges({{"a", "b"}});
  outside.merges.emplace_back(-3, 70000);
  EXPECT_THROW(Tokenizer{outside}, ConfigError);
  TokenizerSpec pattern = bytes_only();
  pattern.steps = {split_at("(unclosed")};
  EXPECT_THROW(Tokenizer{pattern}, ConfigError);
}

TEST(SplitPattern, SaysClassesAndScriptsAsPcre2Does) {
  EXPECT_EQ(SplitPattern::translated("[a\\]&&[^\\p{Han}]]*x[b]"), "(?:(?![\\p{sc:Han}])[a\\]])*x[b]");
  EXPECT_EQ(SplitPattern::translated("[a&&[b]]|\\[&&[^c]"), "(?:(?=[b])[a])|\\[&&[^c]");
  EXPECT_EQ(SplitPattern::translated("\\P{^Latin}\\p{Lu}\\p{L}\\p{Any}"), "\\P{^sc:Latin}\\p{Lu}\\p{L}\\p{Any}");
  EXPECT_EQ(SplitPattern::translated("[^(\\s|[.,\\]])]+[a[b]c]"), "[^(\\s|.,\\])]+[abc]");
  for (const char* same : {"", "[", "[a[b]", "[a[^b]c]", "[a[b-]c]", "[a&&b]", "[[a]&&[b]]", "\\", "\\p{"})
    EXPECT_EQ(SplitPattern::translated(same), same);
}

TEST(Tokenizer, AHostilePatternEndsInAnError) {
  TokenizerSpec spec = bytes_only();
  spec.steps = {split_at("(a+)+$")};
  const Tokenizer tokenizer(spec);
  EXPECT_THROW(Encoder(tokenizer).encode(std::string(60, 'a') + "b"), ConfigError);
  spec.steps = {split_at("(?=a\\K)|x*")};  // matches nothing, or begins late
  EXPECT_THROW(Tokenizer{spec}, ConfigError);
  spec.steps = {split_at("x*|(?=y)")};  // empty matches are passed over
  const Tokenizer empty(spec);
  EXPECT_EQ(empty.decode(Encoder(empty).encode("aéxxby")), "aéxxby");
}

TEST(Tokenizer, LongWordsTakeNearLinearTime) {
  const Tokenizer tokenizer(with_merges({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}));
  const std::vector<TokenId> ids = Encoder(tokenizer).encode(std::string(1 << 20, 'a'));
  EXPECT_EQ(ids.size(), (1u << 20) / 8);
}

TEST(Tokenizer, DecodingGivesTheTextBack) {
  WordCounts counts;
  counts.add(random_text(1, 5000));
  const Tokenizer tokenizer(train_tokenizer(counts, 400));
  Encoder encoder(tokenizer);
  rc::check([&](const std::vector<uint32_t>& code_points) {
    std::string text;
    for (const uint32_t wild : code_points) {
      const uint32_t code_point = wild % 3 == 0 ? wild % 0x110000 : wild % 128;
      if (code_point < 0xd800 || code_point >= 0xe000) append_utf8(text, code_point);
    }
    RC_ASSERT(tokenizer.decode(encoder.encode(text)) == text);
  });
  rc::check([&](const std::string& bytes) {
    RC_ASSERT(tokenizer.decode(encoder.encode(bytes)) == replace_invalid_utf8(bytes));
  });
}

TEST(Tokenizer, TheCacheChangesNothing) {
  WordCounts counts;
  const std::string text = random_text(2, 20000);
  counts.add(text);
  const Tokenizer tokenizer(train_tokenizer(counts, 350));
  Encoder one(tokenizer);
  const std::vector<TokenId> once = one.encode(text);
  EXPECT_EQ(one.encode(text), once);
  std::string many;  // overflows the cache
  for (int i = 0; i < 200000; ++i) many += " w" + std::to_string(i) + "x" + std::to_string(i % 977);
  EXPECT_EQ(tokenizer.decode(one.encode(many)), many);
  EXPECT_EQ(one.encode(text), once);
}

// Letters of three bytes, of which many share their first ones, without a space between them.
std::string random_sentences(uint64_t seed, int letters) {
  const RandomKey key(seed);
  std::string text;
  for (int i = 0; i < letters; ++i) {
    const auto rank = static_cast<uint32_t>(90.0 * std::pow(key.uniform(static_cast<uint64_t>(i)), 2.0));
    append_utf8(text, i % 37 == 36 ? 'z' : 0x4e00 + rank * 23);
    if (i % 53 == 52) text += "，";
  }
  return text;
}

// The definition: the pair learnt first is joined, wherever it stands, until none is left.
std::vector<TokenId> join_slowly(const TokenizerSpec& spec, std::string_view piece) {
  std::vector<TokenId> ids;
  const auto id_of = [&](const std::string& bytes) {
    return static_cast<TokenId>(std::find(spec.tokens.begin(), spec.tokens.end(), bytes) - spec.tokens.begin());
  };
  for (const char c : piece) ids.push_back(id_of(std::string(1, c)));
  for (const auto& [left, right] : spec.merges) {
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      if (ids[i] != left || ids[i + 1] != right) continue;
      ids[i] = id_of(spec.tokens[static_cast<size_t>(left)] + spec.tokens[static_cast<size_t>(right)]);
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
  return ids;
}

TEST(Tokenizer, LongPiecesFallApartWhereNoTokenReaches) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    WordCounts counts;
    counts.add(random_sentences(seed, 3000));
    TokenizerSpec spec = train_tokenizer(counts, 420);
    spec.steps.clear();
    // A token that nothing joins, and that a part of a piece may look like.
    const std::string unlearnt = random_sentences(seed + 50, 4);
    spec.ignore_merges = seed % 2 == 1;
    if (spec.ignore_merges) spec.tokens.push_back(unlearnt);
    const Tokenizer tokenizer(spec);
    Encoder encoder(tokenizer);
    for (int letters : {1, 3, 6, 10, 40, 200}) {
      const std::string text =
          random_sentences(seed + 100, letters) + unlearnt + random_sentences(seed + 9, letters);
      EXPECT_EQ(encoder.encode(text), join_slowly(spec, text)) << seed << ", " << letters;
    }
    EXPECT_EQ(encoder.encode(unlearnt).size() == 1, spec.ignore_merges);
  }
}

// The definition, word by word: count all pairs, take the commonest, smaller ids among equals.
TokenizerSpec train_slowly(const WordCounts& counts, int64_t vocabulary) {
  TokenizerSpec spec = bytes_only();
  std::vector<std::pair<std::vector<TokenId>, int64_t>> words;
  for (const auto& word : counts.words()) {
    std::vector<TokenId> ids;
    for (const char c : counts.bytes(word)) ids.push_back(static_cast<uint8_t>(c));
    words.emplace_back(ids, word.count);
  }
  while (static_cast<int64_t>(spec.tokens.size()) < vocabulary - 1) {
    std::map<std::pair<TokenId, TokenId>, int64_t> pairs;
    for (const auto& [ids, count] : words) {
      for (size_t i = 0; i + 1 < ids.size(); ++i) pairs[{ids[i], ids[i + 1]}] += count;
    }
    std::pair<TokenId, TokenId> best;
    int64_t most = 1;
    for (const auto& [pair, count] : pairs) {
      if (count > most) most = count, best = pair;
    }
    if (most == 1) break;
    const std::string joined =
        spec.tokens[static_cast<size_t>(best.first)] + spec.tokens[static_cast<size_t>(best.second)];
    auto known = std::find(spec.tokens.begin(), spec.tokens.end(), joined);
    const auto id = static_cast<TokenId>(known - spec.tokens.begin());
    if (known == spec.tokens.end()) spec.tokens.push_back(joined);
    spec.merges.push_back(best);
    for (auto& [ids, count] : words) {
      std::vector<TokenId> out;
      for (size_t i = 0; i < ids.size();) {
        const bool here = i + 1 < ids.size() && ids[i] == best.first && ids[i + 1] == best.second;
        out.push_back(here ? id : ids[i]);
        i += here ? 2 : 1;
      }
      ids = out;
    }
  }
  return spec;
}

TEST(TokenizerTraining, EqualsTheDefinition) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    WordCounts counts;
    counts.add(random_text(seed, 1500));
    const TokenizerSpec fast = train_tokenizer(counts, 420), slow = train_slowly(counts, 420);
    ASSERT_EQ(fast.merges, slow.merges) << seed;
    ASSERT_EQ(fast.tokens, slow.tokens) << seed;
  }
}

TEST(TokenizerTraining, EndsWhereNoPairRepeats) {
  WordCounts counts;
  counts.add("abc");
  const TokenizerSpec spec = train_tokenizer(counts, 1000);
  EXPECT_TRUE(spec.merges.empty());
  const Tokenizer tokenizer(spec);
  EXPECT_EQ(tokenizer.vocabulary(), 257);
  EXPECT_EQ(tokenizer.end_of_text(), 256);
  EXPECT_THROW(train_tokenizer(counts, 256), ConfigError);
  EXPECT_THROW(train_tokenizer(counts, int64_t{1} << 40), ConfigError);
}

}  // namespace
}  // namespace heddle::data

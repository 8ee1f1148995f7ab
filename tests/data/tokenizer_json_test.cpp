// tokenizer.json: equal ids to Hugging Face's library on the files of tests/fixtures/tokenizers
// (tools/make_tokenizer_fixtures.py), a refusal for everything else, and no crash on damaged files.
#include "heddle/data/tokenizer/tokenizer_json.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/random.h"
#include "heddle/data/tokenizer/tokenizer_train.h"
#include "tests/support/scratch_folder.h"

namespace heddle::data {
namespace {

using Json = nlohmann::json;

const std::string kFolder = std::string(HEDDLE_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

std::string fixture(const std::string& name) { return read_file(kFolder + name, 1 << 20); }

TEST(TokenizerJson, GivesTheIdsOfTheLibrary) {
  const std::string text = fixture("text.txt");
  const Json ids = Json::parse(fixture("ids.json"));
  ASSERT_EQ(ids.size(), 6u);
  for (const auto& [name, wanted] : ids.items()) {
    const Tokenizer tokenizer(read_tokenizer(kFolder + name + ".json"));
    const std::vector<TokenId> found = Encoder(tokenizer).encode(text, AddedTokens::parse);
    EXPECT_EQ(found, wanted.get<std::vector<TokenId>>()) << name;
    EXPECT_GT(found.size(), 1000u);
    if (name != "gpt2_space") {  // which adds spaces
      EXPECT_EQ(tokenizer.decode(found), text) << name;
      EXPECT_EQ(tokenizer.decode(Encoder(tokenizer).encode(text)), text) << name;
    }
    EXPECT_GE(tokenizer.end_of_text(), 0) << name;
  }
}

TEST(TokenizerJson, WritesWhatTheLibraryLoads) {
  WordCounts counts;
  counts.add(fixture("text.txt"));
  const std::string written = tokenizer_json(train_tokenizer(counts, 420));
  if (std::getenv("HEDDLE_WRITE_FIXTURES") != nullptr) write_file(kFolder + "heddle.json", written);
  EXPECT_EQ(written, fixture("heddle.json"));
}

TEST(TokenizerJson, ComesBackAsItWas) {
  ScratchFolder folder;
  for (const char* name : {"heddle", "llama3", "deepseek", "gpt2_space"}) {
    const TokenizerSpec spec = read_tokenizer(kFolder + name + ".json");
    write_tokenizer(folder / "tokenizer.json", spec);
    const TokenizerSpec again = read_tokenizer(folder / "tokenizer.json");
    EXPECT_EQ(again.tokens, spec.tokens) << name;
    EXPECT_EQ(again.merges, spec.merges) << name;
    EXPECT_EQ(again.splits, spec.splits) << name;
    EXPECT_EQ(again.ignore_merges, spec.ignore_merges) << name;
    EXPECT_EQ(again.add_prefix_space, spec.add_prefix_space) << name;
    ASSERT_EQ(again.added.size(), spec.added.size()) << name;
    for (size_t i = 0; i < spec.added.size(); ++i) {
      EXPECT_EQ(again.added[i].id, spec.added[i].id);
      EXPECT_EQ(again.added[i].content, spec.added[i].content);
      EXPECT_EQ(again.added[i].normalized, spec.added[i].normalized);
    }
  }
}

std::string complaint(const std::string& text) {
  try {
    Tokenizer tokenizer(parse_tokenizer_json(text, "t.json"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TokenizerJson, RefusesByPath) {
  const Json good = Json::parse(fixture("llama3.json"));
  ASSERT_EQ(complaint(good.dump()), "");
  const struct {
    const char* pointer;
    Json value;
    const char* named;
  } cases[] = {
      {"/normalizer", {{"type", "NFC"}}, "normalizer.type: 'NFC'"},
      {"/truncation", {{"max_length", 3}}, "truncation"},
      {"/padding", {{"strategy", "BatchLongest"}}, "padding"},
      {"/model/type", "Unigram", "model.type: 'Unigram'"},
      {"/model/type", 3, "model.type"},
      {"/model/dropout", 0.1, "model.dropout"},
      {"/model/byte_fallback", true, "model.byte_fallback"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix"},
      {"/model/ignore_merges", "yes", "model.ignore_merges"},
      {"/model/vocab", Json::array({1}), "model.vocab"},
      {"/model/vocab/a", -1, "model.vocab[\"a\"]"},
      {"/model/vocab/a", 1e300, "model.vocab[\"a\"]"},
      {"/model/vocab/a", 4294967296, "model.vocab[\"a\"]"},
      {"/model/vocab/a", 66, "has the id"},
      {"/model/vocab/zzz", 2000000000, "model.vocab[\"zzz\"]"},
      {"/model/vocab/中", 1999, "model.vocab"},
      {"/model/vocab/", 1999, "model.vocab"},
      {"/model/merges", nullptr, "model.merges"},
      {"/model/merges/0", "a", "model.merges[0]"},
      {"/model/merges/0", "a b c", "model.merges[0]"},
      {"/model/merges/0", Json::array({"a"}), "model.merges[0]"},
      {"/model/merges/0", Json::array({"nowhere", "b"}), "model.merges[0]"},
      {"/model/merges/0", Json::array({"Z", "Q"}), "t"},
      {"/pre_tokenizer", nullptr, "pre_tokenizer"},
      {"/pre_tokenizer", {{"type", "ByteLevl"}}, "did you mean 'ByteLevel'"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Removed", "pre_tokenizer.pretokenizers[0].behavior"},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"Regex", "(x"}}, "pre_tokenizer.pretokenizers[0].pattern.Regex"},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"Regex", "\\w+"}}, "pattern.Regex"},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"Regex", "[\\p{L}&&[^a]]"}}, "pattern.Regex"},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"Regex", "(*LIMIT_MATCH=9)a"}}, "pattern.Regex"},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"Rgx", "a"}}, "pretokenizers[0].pattern"},
      {"/pre_tokenizer/pretokenizers/1", {{"type", "Digits"}}, "pre_tokenizer"},
      {"/pre_tokenizer/pretokenizers/1/add_prefix_space", true, "pretokenizers[1].add_prefix_space"},
      {"/decoder/type", "Metaspace", "decoder.type: 'Metaspace'"},
      {"/added_tokens", {{"id", 3}}, "added_tokens"},
      {"/added_tokens/0/lstrip", true, "added_tokens[0].lstrip"},
      {"/added_tokens/0/id", -7, "added_tokens[0].id"},
      {"/added_tokens/0/id", 65, "added_tokens"},
      {"/added_tokens/0/content", "", "added_tokens[0].content"},
  };
  for (const auto& [pointer, value, named] : cases) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = value;
    const std::string what = complaint(bad.dump());
    EXPECT_NE(what.find(named), std::string::npos) << pointer << " -> '" << what << "'";
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

TEST(TokenizerJson, RefusesWhatIsNoJsonOrTooDeep) {
  for (const char* text :
       {"", "{", "[]", "3", "null", "{\"model\":", "\"\xff\"", "{\"a\":\"\\ud800\"}", "{}garbage"}) {
    EXPECT_NE(complaint(text), "") << text;
  }
  EXPECT_NE(complaint(std::string(1 << 20, '[')).find("deep"), std::string::npos);
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_NE(complaint(deep).find("deep"), std::string::npos);
}

TEST(TokenizerJson, DamageNeverCrashes) {
  const std::string good = fixture("deepseek.json");
  const RandomKey key(17);
  int refused = 0;
  for (uint64_t round = 0; round < 600; ++round) {
    std::string bad = good;
    const RandomKey draw = key.with(round);
    if (round % 3 == 0) {
      bad.resize(draw.bits(0) % bad.size());
    } else {
      for (uint64_t i = 0; i < 1 + draw.bits(1) % 4; ++i) {
        bad[draw.bits(2 + 2 * i) % bad.size()] = "\"{}[],:0a-\\\xff 9"[draw.bits(3 + 2 * i) % 15];
      }
    }
    try {
      const Tokenizer tokenizer(parse_tokenizer_json(bad, "t.json"));
      Encoder(tokenizer).encode("The loom is loud 123.\n", AddedTokens::parse);
    } catch (const ConfigError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace heddle::data

// tokenizer.json: read back as it was written, a refusal for everything else, and no crash on damaged files.
#include "heddle/data/tokenizer/files/tokenizer_json.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/random.h"
#include "heddle/data/tokenizer/byte_alphabet.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/data/tokenizer/tokenizer.h"
#include "heddle/data/tokenizer/tokenizer_train.h"
#include "tests/support/scratch_folder.h"

namespace heddle::data {
namespace {

using PlainJson = nlohmann::json;

const std::string kFolderTokenizerJson = std::string(HEDDLE_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

std::string fixture_tokenizer_json(const std::string& name) {
  return read_file(kFolderTokenizerJson + name, 1 << 20);
}

// Of a split its pattern, of another step its place among the kinds.
std::vector<std::string> patterns(const TokenizerSpec& spec) {
  std::vector<std::string> all;
  for (const PieceStep& step : spec.steps) {
    const auto* split = std::get_if<SplitStep>(&step);
    all.push_back(split != nullptr ? split->pattern : std::to_string(step.index()));
  }
  return all;
}

TEST(TokenizerJson, WritesWhatTheLibraryLoads) {
  WordCounts counts;
  counts.add(fixture_tokenizer_json("text.txt"));
  const std::string written = tokenizer_json(train_tokenizer(counts, 420));
  if (std::getenv("HEDDLE_WRITE_FIXTURES") != nullptr) write_file(kFolderTokenizerJson + "heddle.json", written);
  EXPECT_EQ(written, fixture_tokenizer_json("heddle.json"));
}

TEST(TokenizerJson, ComesBackAsItWas) {
  ScratchFolder folder;
  for (const char* name : {"heddle", "gpt_oss", "deepseek", "gpt2_space"}) {
    const TokenizerSpec spec = read_tokenizer(kFolderTokenizerJson + name + ".json");
    write_tokenizer(folder / "tokenizer.json", spec);
    const TokenizerSpec again = read_tokenizer(folder / "tokenizer.json");
    EXPECT_EQ(again.tokens, spec.tokens) << name;
    EXPECT_EQ(again.merges, spec.merges) << name;
    EXPECT_EQ(patterns(again), patterns(spec)) << name;
    EXPECT_EQ(again.ignore_merges, spec.ignore_merges) << name;
    ASSERT_EQ(again.added.size(), spec.added.size()) << name;
    for (size_t i = 0; i < spec.added.size(); ++i) {
      EXPECT_EQ(again.added[i].id, spec.added[i].id);
      EXPECT_EQ(again.added[i].content, spec.added[i].content);
      EXPECT_EQ(again.added[i].normalized, spec.added[i].normalized);
    }
  }
}

std::string complaint_tokenizer_json(const std::string& text) {
  try {
    Tokenizer tokenizer(parse_tokenizer_json(text, "t.json"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TokenizerJson, RefusesByPath) {
  const PlainJson good = PlainJson::parse(fixture_tokenizer_json("llama3.json"));
  ASSERT_EQ(complaint_tokenizer_json(good.dump()), "");
  const struct {
    const char* pointer;
    PlainJson value;
    const char* named;
  } cases[] = {
      {"/model/type", "Unigram", "model.type: 'Unigram'"},
      {"/model/type", 3, "model.type"},
      {"/model/dropout", 0.1, "model.dropout"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix"},
      {"/model/ignore_merges", "yes", "model.ignore_merges"},
      {"/model/vocab", PlainJson::array({1}), "model.vocab"},
      {"/model/vocab/a", -1, "model.vocab[\"a\"]"},
      {"/model/vocab/a", 1e300, "model.vocab[\"a\"]"},
      {"/model/vocab/a", 4294967296, "model.vocab[\"a\"]"},
      {"/model/vocab/a", 66, "has the id"},
      {"/model/vocab/zzz", 2000000000, "model.vocab[\"zzz\"]"},
      {"/model/merges", nullptr, "model.merges"},
      {"/model/merges/0", "a", "model.merges[0]"},
      {"/model/merges/0", "a b c", "model.merges[0]"},
      {"/model/merges/0", PlainJson::array({"a"}), "model.merges[0]"},
      {"/model/merges/0", PlainJson::array({"nowhere", "b"}), "model.merges[0]"},
      {"/model/merges/0", PlainJson::array({"Z", "Q"}), "t"},
      {"/pre_tokenizer", nullptr, "pre_tokenizer"},
      {"/pre_tokenizer", {{"type", "ByteLevl"}}, "did you mean 'ByteLevel'"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Mergd", "pre_tokenizer.pretokenizers[0].behavior"},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"Regex", "(x"}}, "pre_tokenizer.pretokenizers[0].pattern.Regex"},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"Regex", "\\w+"}}, "pattern.Regex"},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"Regex", "[\\p{L}[^a]]"}}, "pattern.Regex"},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"Regex", "(*LIMIT_MATCH=9)a"}}, "pattern.Regex"},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"Rgx", "a"}}, "pretokenizers[0].pattern"},
      {"/pre_tokenizer/pretokenizers/1", {{"type", "Digits"}}, "pre_tokenizer"},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"Regex", "a$"}}, "pattern.Regex"},
      {"/pre_tokenizer", {{"type", "BertPreTokenizer"}}, "pre_tokenizer.type: 'BertPreTokenizer'"},
      {"/normalizer", {{"type", "Lowercase"}}, "normalizer.type: 'Lowercase'"},
      {"/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", ""}}, "normalizer.type: 'Precompiled'"},
      {"/normalizer", {{"type", "NFK"}}, "did you mean 'NFC'"},
      {"/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "a*"}}}, {"content", ""}}, "normalizer.pattern"},
      {"/post_processor", {{"type", "BertProcessing"}}, "post_processor.cls"},
      {"/post_processor", {{"type", "RobertaProcessing"}, {"cls", {"a"}}}, "post_processor.cls"},
      {"/pre_tokenizer/pretokenizers/2", {{"type", "Metaspace"}}, "pre_tokenizer.pretokenizers[2]"},
      {"/pre_tokenizer/pretokenizers/2", {{"type", "ByteLevel"}}, "pre_tokenizer.pretokenizers[2]"},
      {"/model/type", "WordPiece", "model.type: 'WordPiece'"},
      {"/decoder/type", "Metaspace", "decoder.type: 'Metaspace'"},
      {"/added_tokens", {{"id", 3}}, "added_tokens"},
      {"/added_tokens/0/single_word", true, "added_tokens[0].single_word"},
      {"/added_tokens/0/id", -7, "added_tokens[0].id"},
      {"/added_tokens/0/id", 65, "added_tokens"},
      {"/added_tokens/0/content", "", "added_tokens[0].content"},
  };
  for (const auto& [pointer, value, named] : cases) {
    PlainJson bad = good;
    bad[PlainJson::json_pointer(pointer)] = value;
    const std::string what = complaint_tokenizer_json(bad.dump());
    EXPECT_NE(what.find(named), std::string::npos) << pointer << " -> '" << what << "'";
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

// A byte-level tokenizer that joins nothing: each byte is its id.
PlainJson of_single_bytes() {
  PlainJson made{{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                 {"decoder", {{"type", "ByteLevel"}}},
                 {"added_tokens", PlainJson::array()},
                 {"model", {{"type", "BPE"}, {"vocab", PlainJson::object()}, {"merges", PlainJson::array()}}}};
  for (int byte = 0; byte < 256; ++byte)
    made["model"]["vocab"][byte_alphabet::of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  return made;
}

void add_token(PlainJson& tokenizer, int id, const std::string& content, bool special) {
  tokenizer["added_tokens"].push_back({{"id", id}, {"content", content}, {"special", special}});
}

std::vector<TokenId> ids_in(const PlainJson& file, std::string_view text, AddedTokens added = AddedTokens::plain) {
  const Tokenizer tokenizer(parse_tokenizer_json(file.dump(), "t.json"));
  return Encoder(tokenizer).encode(text, added);
}

using Ids = std::vector<TokenId>;

TEST(TokenizerJson, AcceptsWhatChangesNoIds) {
  PlainJson file = of_single_bytes();
  file["truncation"] = {{"max_length", 3}};
  file["padding"] = {{"strategy", "BatchLongest"}};
  file["model"]["vocab"][""] = 256;
  file["model"]["vocab"]["\n"] = 257;  // no letter of the alphabet
  PlainJson byte_level = file["pre_tokenizer"];
  for (int i = 0; i < 3; ++i)
    byte_level = {{"type", "Sequence"}, {"pretokenizers", PlainJson::array({byte_level})}};
  file["pre_tokenizer"] = byte_level;
  EXPECT_EQ(ids_in(file, "a\nbcd"), (Ids{'a', '\n', 'b', 'c', 'd'}));
}

TEST(TokenizerJson, VocabulariesOfTextMayLackRareBytes) {
  PlainJson file = of_single_bytes();
  file["pre_tokenizer"]["use_regex"] = false;
  const auto erase = [&](int byte) {
    file["model"]["vocab"].erase(byte_alphabet::of_bytes(std::string(1, static_cast<char>(byte))));
  };
  for (const int byte : {0x03, 0x7f, 0xc0, 0xc1, 0xf2, 0xf5, 0xff}) erase(byte);
  file["model"]["vocab"]["ab"] = 256;
  file["model"]["merges"].push_back("a b");
  EXPECT_EQ(ids_in(file,
                   "a\x03"
                   "b\x03\x7f"),
            Ids{256});  // dropped, as tokenizers drops it
  EXPECT_EQ(ids_in(file, std::string(40, 'c') + "a\x03"
                                                "b")
                .back(),
            256);
  erase('\t');
  EXPECT_NE(complaint_tokenizer_json(file.dump()).find("byte 9 has no token"), std::string::npos);
}

TEST(TokenizerJson, PlainTextHasNoSpecialTokens) {
  PlainJson file = of_single_bytes();
  add_token(file, 256, "<e>", true);
  add_token(file, 257, "  ", false);
  EXPECT_EQ(ids_in(file, "  <e>  "), (Ids{257, '<', 'e', '>', 257}));
  EXPECT_EQ(ids_in(file, "  <e>  ", AddedTokens::parse), (Ids{257, 256, 257}));
}

TEST(TokenizerJson, StepsBehindByteLevelSeeItsLetters) {
  PlainJson file = of_single_bytes();
  const PlainJson digits = {{"type", "Split"}, {"pattern", {{"Regex", "[0-9][0-9]"}}}, {"behavior", "Isolated"}};
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
                             file["pre_tokenizer"],
                             digits,
                             {{"type", "Digits"}}}}};
  auto& vocabulary = file["model"]["vocab"];
  for (const auto& [pair, id] : {std::pair("1 2", 256), {"2 3", 257}, {"! ?", 258}, {"? a", 259}, {"ä ²", 260}}) {
    std::string joined = pair;
    joined.erase(joined.find(' '), 1);
    vocabulary[joined] = id;
    file["model"]["merges"].push_back(pair);
  }
  EXPECT_EQ(ids_in(file, "1234"), (Ids{256, '3', '4'}));
  EXPECT_EQ(ids_in(file, "!?a"), (Ids{258, 'a'}));
  // The second byte of the character is a digit's letter, so that the two stay apart.
  EXPECT_EQ(ids_in(file, "\xe4\xb2\x80"), (Ids{0xe4, 0xb2, 0x80}));
}

TEST(TokenizerJson, ProcessorsOfEncodersPutTokensAround) {
  PlainJson file = of_single_bytes();
  file["post_processor"] = {{"type", "RobertaProcessing"}, {"sep", {"</s>", 2}}, {"cls", {"<s>", 0}}};
  const TokenizerSpec spec = parse_tokenizer_json(file.dump(), "t.json");
  EXPECT_EQ(spec.before, Ids{0});
  EXPECT_EQ(spec.after, Ids{2});
}

TEST(TokenizerJson, MarksOfSpacesAreDecodedInAddedTokensToo) {
  PlainJson file = PlainJson::parse(fixture_tokenizer_json("llama2.json"));
  add_token(file, 5000, "\u2581\u2581\u2581", false);
  const Tokenizer tokenizer(parse_tokenizer_json(file.dump(), "t.json"));
  EXPECT_EQ(tokenizer.decode(Ids{5000}), "   ");
}

TEST(TokenizerJson, AClassWithinAClassIsPartOfIt) {
  PlainJson file = of_single_bytes();
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", " ?[^(\\s|[.,])]+"}}}, {"behavior", "Isolated"}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  for (const auto& [pair, id] : {std::pair("a .", 256), {". b", 257}, {"a b", 258}}) {
    std::string joined = pair;
    joined.erase(joined.find(' '), 1);
    file["model"]["vocab"][joined] = id;
    file["model"]["merges"].push_back(pair);
  }
  EXPECT_EQ(ids_in(file, "ab.ba.b"), (Ids{258, '.', 'b', 'a', '.', 'b'}));
}

TEST(TokenizerJson, RefusesToDropWhatIsNoToken) {
  PlainJson bad = PlainJson::parse(fixture_tokenizer_json("llama2.json"));
  ASSERT_EQ(complaint_tokenizer_json(bad.dump()), "");
  bad["model"]["byte_fallback"] = false;
  ASSERT_EQ(complaint_tokenizer_json(bad.dump()), "");  // they are <unk>
  bad["model"]["unk_token"] = nullptr;
  EXPECT_NE(complaint_tokenizer_json(bad.dump()).find("pre_tokenizer"), std::string::npos);
  bad["model"]["byte_fallback"] = true;
  ASSERT_EQ(complaint_tokenizer_json(bad.dump()), "");
  bad["model"]["vocab"].erase("<0x41>");
  EXPECT_NE(complaint_tokenizer_json(bad.dump()).find("model.byte_fallback"), std::string::npos);
  // Without any of them there is nothing to fall back to.
  for (int byte = 0; byte < 256; ++byte) bad["model"]["vocab"].erase(fmt::format("<0x{:02X}>", byte));
  bad["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(complaint_tokenizer_json(bad.dump()), "");
}

TEST(TokenizerJson, RefusesWhatIsNoJsonOrTooDeep) {
  for (const char* text :
       {"", "{", "[]", "3", "null", "{\"model\":", "\"\xff\"", "{\"a\":\"\\ud800\"}", "{}garbage"}) {
    EXPECT_NE(complaint_tokenizer_json(text), "") << text;
  }
  EXPECT_NE(complaint_tokenizer_json(std::string(1 << 20, '[')).find("deep"), std::string::npos);
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_NE(complaint_tokenizer_json(deep).find("deep"), std::string::npos);
}

TEST(TokenizerJson, DamageNeverCrashes) {
  const std::string good = fixture_tokenizer_json("deepseek.json");
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

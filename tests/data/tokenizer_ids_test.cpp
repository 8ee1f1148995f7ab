// Equal ids to Hugging Face's `tokenizers`, to SentencePiece and to tiktoken, on tokenizers of the forms of
// published ones (tests/fixtures/tokenizers, made by tools/make_tokenizer_fixtures.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/utf8.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/data/tokenizer/tokenizer.h"
#include "tests/support/scratch_folder.h"

namespace heddle::data {
namespace {

using PlainJson = nlohmann::json;

const std::string kFolderTokenizerIds = std::string(HEDDLE_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

std::string fixture(const std::string& name) { return read_file(kFolderTokenizerIds + name, 1 << 20); }

// Where two lists of ids part, with the text around it.
std::string first_difference(const Tokenizer& tokenizer, const std::vector<TokenId>& found,
                             const std::vector<TokenId>& wanted) {
  size_t at = 0;
  while (at < found.size() && at < wanted.size() && found[at] == wanted[at]) ++at;
  const auto from = [&](const std::vector<TokenId>& ids) {
    std::string text;
    for (size_t i = std::min(at, ids.size()); i < std::min(at + 6, ids.size()); ++i)
      text += fmt::format("{}'{}' ", ids[i], tokenizer.token_bytes(ids[i]));
    return text;
  };
  return fmt::format("at {} of {} (wanted {}) behind '{}': found {}, wanted {}", at, found.size(), wanted.size(),
                     tokenizer.decode(std::span(found).subspan(at > 8 ? at - 8 : 0, std::min<size_t>(at, 8))),
                     from(found), from(wanted));
}

// SentencePiece knows no added tokens in text.
AddedTokens way_of(const std::string& name) {
  return name.ends_with("_sp.model") ? AddedTokens::plain : AddedTokens::parse;
}

TEST(TokenizerIds, AreThoseOfTheLibraries) {
  const PlainJson all = PlainJson::parse(fixture("ids.json"));
  ASSERT_EQ(all.size(), 21u);
  const std::string text = fixture("text.txt"), hard = fixture("hard.bin");
  for (const auto& [name, ids] : all.items()) {
    const Tokenizer tokenizer(read_tokenizer(kFolderTokenizerIds + name), name);
    Encoder encoder(tokenizer);
    for (const auto& [kind, input] : {std::pair{"text", text}, std::pair{"hard", hard}}) {
      const auto wanted = ids[kind].get<std::vector<TokenId>>();
      for (int time = 0; time < 2; ++time) {  // the second from the cache
        const std::vector<TokenId> found = encoder.encode(input, way_of(name));
        EXPECT_TRUE(found == wanted) << name << ", " << kind << ": " << first_difference(tokenizer, found, wanted);
      }
      EXPECT_GT(wanted.size(), 500u);
    }
    EXPECT_GE(tokenizer.end_of_text(), 0) << name;
  }
}

TEST(TokenizerIds, BeginAsThePostProcessorSays) {
  const PlainJson all = PlainJson::parse(fixture("ids.json"));
  int with_beginning = 0;
  for (const auto& [name, ids] : all.items()) {
    if (!ids.contains("begins")) continue;
    const Tokenizer tokenizer(read_tokenizer(kFolderTokenizerIds + name), name);
    std::vector<TokenId> found;
    Encoder(tokenizer).encode_document("the", found);
    ASSERT_EQ(found.back(), tokenizer.end_of_text()) << name;
    found.pop_back();
    EXPECT_EQ(found, ids["begins"].get<std::vector<TokenId>>()) << name;
    with_beginning += !tokenizer.spec().before.empty();
  }
  EXPECT_EQ(with_beginning, 5);
}

// What comes back is the text as the normalizer left it: LLaMA's with a space before.
TEST(TokenizerIds, DecodeToTheText) {
  const std::string text = fixture("text.txt"), mended = replace_invalid_utf8(fixture("hard.bin"));
  const auto of = [&](const std::string& name, const std::string& input) {
    const Tokenizer tokenizer(read_tokenizer(kFolderTokenizerIds + name), name);
    return tokenizer.decode(Encoder(tokenizer).encode(input));
  };
  const auto spaced = [](std::string marked) {
    for (size_t at = marked.find(kSpaceMark); at != std::string::npos; at = marked.find(kSpaceMark, at))
      marked.replace(at, kSpaceMark.size(), " ");
    return marked;
  };
  for (const char* name : {"gpt2.json", "llama3.json", "deepseek.json", "deepseek_v2.json", "digits.json",
                           "glm.json", "gpt_oss.json", "heddle.json", "kimi"}) {
    EXPECT_EQ(of(name, text), text) << name;
    EXPECT_EQ(of(name, mended), mended) << name;
  }
  EXPECT_EQ(of("llama2.json", mended), " " + spaced(mended));
  EXPECT_EQ(of("gemma.json", mended), spaced(mended));
  EXPECT_EQ(of("llama2_sp.model", text), " " + spaced(text));
  EXPECT_EQ(of("gemma_sp.model", text), spaced(text));
  EXPECT_EQ(of("qwen.json", "Ze\u0301ro"), "Z\u00e9ro");
}

TEST(TokenizerFiles, AreKeptUnderTheirNames) {
  for (const char* name : {"qwen.json", "llama2_sp.model", "kimi/tiktoken.model", "kimi"}) {
    ScratchFolder folder;
    const TokenizerFiles from = load_tokenizer(kFolderTokenizerIds + name);
    keep_tokenizer(from, folder.path().string());
    const std::string kept = tokenizer_in(folder.path().string());
    ASSERT_FALSE(kept.empty()) << name;
    const TokenizerFiles again = load_tokenizer(kept);
    EXPECT_EQ(again.hash(), from.hash()) << name;
    const Tokenizer one(from.spec), other(again.spec);
    const std::string hard = fixture("hard.bin");
    EXPECT_EQ(Encoder(one).encode(hard, AddedTokens::parse), Encoder(other).encode(hard, AddedTokens::parse))
        << name;
    EXPECT_EQ(one.vocabulary(), other.vocabulary()) << name;
  }
  ScratchFolder empty;
  EXPECT_EQ(tokenizer_in(empty.path().string()), "");
  EXPECT_THROW(load_tokenizer(empty.path().string()), ConfigError);
}

TEST(TokenizerFiles, RefuseWhatTheyAreNot) {
  ScratchFolder folder;
  const auto complaint = [&](const std::string& name, const std::string& content) -> std::string {
    write_file(folder / name, content);
    try {
      const Tokenizer tokenizer(read_tokenizer(folder / name), name);
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
      return error.what();
    }
    return "";
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const std::string tokens = fixture("kimi/tiktoken.model");
  EXPECT_PRED2(has, complaint("a.tiktoken", tokens), "pat_str");
  EXPECT_EQ(complaint("o200k_base.tiktoken", tokens), "");
  EXPECT_PRED2(has, complaint("qwen.tiktoken", "QQ== 0\nQg== zero\n"), "qwen.tiktoken:2:");
  EXPECT_PRED2(has, complaint("qwen.tiktoken", "QQ== 0\nQg== 0\n"), "another token has the id 0");
  EXPECT_PRED2(has, complaint("qwen.tiktoken", "Q=== 0\n"), "base64");
  EXPECT_PRED2(has, complaint("qwen.tiktoken", "QQ== 0\n"), "byte 9 has no token");
  const std::string model = fixture("llama2_sp.model");
  EXPECT_PRED2(has, complaint("m.model", model.substr(0, model.size() / 2)), "damaged");
  std::string words = model;  // trainer_spec.model_type: field 3, BPE
  const size_t type = words.find("llama2_sp\x18\x02");
  ASSERT_NE(type, std::string::npos);
  words[type + 10] = 3;
  EXPECT_PRED2(has, complaint("m.model", words), "model_type 3");
}

}  // namespace
}  // namespace heddle::data

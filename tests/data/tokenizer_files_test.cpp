// Tokenizers as other tools leave them: which token ends a text, files by other names, vocabularies without all
// bytes.
#include "heddle/data/tokenizer/files/tokenizer_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/data/prepare_data.h"
#include "heddle/data/tokenizer/files/end_of_text.h"
#include "heddle/data/tokenizer/tokenizer.h"
#include "tests/support/scratch_folder.h"

namespace heddle::data {
namespace {

namespace fs = std::filesystem;
using PlainJson = nlohmann::json;

const std::string kFolderTokenizerFiles = std::string(HEDDLE_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

PlainJson gpt2() { return PlainJson::parse(read_file(kFolderTokenizerFiles + "gpt2.json", 16 << 20)); }

// A byte-level tokenizer whose end has no known name: its one added token is <|stop|>.
PlainJson with_stop(const std::string& name = "<|stop|>") {
  PlainJson made = gpt2();
  PlainJson& vocabulary = made["model"]["vocab"];
  for (const PlainJson& added : made["added_tokens"]) vocabulary.erase(added["content"].get<std::string>());
  int64_t next = 0;
  for (const auto& [token, id] : vocabulary.items()) next = std::max<int64_t>(next, id.get<int64_t>() + 1);
  PlainJson token = made["added_tokens"][0];
  token["id"] = next + 1;
  token["content"] = name;
  made["added_tokens"] = PlainJson::array({token});
  made["post_processor"] = nullptr;
  return made;
}

void spill_tokenizer_files(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string end_in(const std::string& folder, const std::string& asked = "") {
  const TokenizerFiles files = load_tokenizer(folder, asked);
  const Tokenizer tokenizer(files.spec, folder);
  return tokenizer.end_of_text() < 0 ? "" : std::string(tokenizer.token_bytes(tokenizer.end_of_text()));
}

std::string refusal(const std::string& path, const std::string& asked = "") {
  try {
    const TokenizerFiles files = load_tokenizer(path, asked);
    const Tokenizer tokenizer(files.spec, path);
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  return "";
}

TEST(EndOfText, IsSaidByTheFilesBesideATokenizer) {
  const PlainJson tokenizer = with_stop();
  const int64_t id = tokenizer["added_tokens"][0]["id"];
  const std::pair<const char*, PlainJson> kFiles[] = {
      {"tokenizer_config.json", {{"eos_token", "<|stop|>"}}},
      {"tokenizer_config.json", {{"eos_token", {{"content", "<|stop|>"}, {"lstrip", false}}}}},
      {"special_tokens_map.json", {{"eos_token", "<|stop|>"}}},
      {"special_tokens_map.json", {{"eos_token", {{"content", "<|stop|>"}}}}},
      {"generation_config.json", {{"eos_token_id", id}}},
      {"generation_config.json", {{"eos_token_id", {id, 3}}}},
      {"config.json", {{"eos_token_id", id}}},
      {"config.json", {{"eos_token_id", {id, 7}}}},
  };
  for (const auto& [name, said] : kFiles) {
    ScratchFolder folder;
    spill_tokenizer_files(folder / "tokenizer.json", tokenizer.dump());
    EXPECT_EQ(end_in(folder.path()), "");
    spill_tokenizer_files(folder / name, said.dump());
    EXPECT_EQ(end_in(folder.path()), "<|stop|>") << name << said;
    EXPECT_EQ(end_in(folder / "tokenizer.json"), "<|stop|>") << name << said;
  }
}

TEST(EndOfText, IsSetByItsTextOrItsId) {
  ScratchFolder folder;
  const PlainJson tokenizer = with_stop();
  spill_tokenizer_files(folder / "tokenizer.json", tokenizer.dump());
  EXPECT_EQ(end_in(folder.path(), "<|stop|>"), "<|stop|>");
  EXPECT_EQ(end_in(folder.path(), tokenizer["added_tokens"][0]["id"].dump()), "<|stop|>");
  EXPECT_NE(refusal(folder.path(), "<|stpo|>").find("has no token '<|stpo|>', did you mean '<|stop|>'"),
            std::string::npos)
      << refusal(folder.path(), "<|stpo|>");
  // It wins over a known name, and a file beside does not.
  spill_tokenizer_files(folder / "known/tokenizer.json", gpt2().dump());
  spill_tokenizer_files(folder / "known/tokenizer_config.json", PlainJson{{"eos_token", "!"}}.dump());
  EXPECT_EQ(end_in(folder / "known"), "<|endoftext|>");
  EXPECT_EQ(end_in(folder / "known", "!"), "!");
}

TEST(EndOfText, StaysWithTheDataThatWerePrepared) {
  ScratchFolder folder;
  spill_tokenizer_files(folder / "t/tokenizer.json", with_stop().dump());
  spill_tokenizer_files(folder / "t/tokenizer_config.json", R"({"eos_token": "<|stop|>"})");
  std::string text;
  for (int i = 0; i < 2000; ++i) text += fmt::format("A line of text, number {}.\n\n", i);
  spill_tokenizer_files(folder / "in.txt", text);
  const TokenizerFiles files = load_tokenizer(folder / "t");
  const Tokenizer tokenizer(files.spec, "t");
  place_tokenizer(files, folder / "t", folder / "out");
  const PreparedData data = prepare_text_data(folder / "in.txt", folder / "out", tokenizer.vocabulary());
  EXPECT_EQ(data.end_of_text, "<|stop|>");
  EXPECT_EQ(end_in(folder / "out"), "<|stop|>");
  EXPECT_EQ(load_tokenizer(folder / "out").hash(), files.hash());
  place_tokenizer(files, folder / "t", folder / "out");
  EXPECT_TRUE(prepare_text_data(folder / "in.txt", folder / "out", tokenizer.vocabulary()).was_up_to_date);
}

TEST(TokenizerFiles, VocabularyAndMergesAreATokenizer) {
  const PlainJson json = gpt2();
  ScratchFolder folder;
  spill_tokenizer_files(folder / "vocab.json", json["model"]["vocab"].dump());
  std::string merges = "#version: 0.2\n";
  for (const PlainJson& merge : json["model"]["merges"])
    merges += merge.is_string() ? merge.get<std::string>() + "\n"
                                : merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  spill_tokenizer_files(folder / "merges.txt", merges);
  PlainJson added = PlainJson::object();
  for (const PlainJson& token : json["added_tokens"]) added[token["content"].get<std::string>()] = token["id"];
  spill_tokenizer_files(folder / "added_tokens.json", added.dump());
  const std::string text = read_file(kFolderTokenizerFiles + "text.txt", 1 << 20);
  // Without more said, those that nothing calls special are found in normalized text.
  PlainJson same = json;
  for (PlainJson& token : same["added_tokens"]) token["normalized"] = !token["special"].get<bool>();
  const Tokenizer whole(parse_tokenizer_json(same.dump(), "gpt2"), "gpt2");
  for (const std::string& path : {folder.path().string(), folder / "vocab.json", folder / "merges.txt"}) {
    const Tokenizer pair(read_tokenizer(path), path);
    EXPECT_EQ(Encoder(pair).encode(text), Encoder(whole).encode(text)) << path;
    EXPECT_EQ(pair.end_of_text(), whole.end_of_text());
  }
  spill_tokenizer_files(folder / "tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer"})");
  EXPECT_NE(refusal(folder.path()).find("tokenizer_class 'RobertaTokenizer'"), std::string::npos);
  spill_tokenizer_files(folder / "tokenizer_config.json",
                        R"({"tokenizer_class": "Qwen2TokenizerFast", "eos_token": "<|endoftext|>"})");
  const Tokenizer qwen(read_tokenizer(folder.path()), "qwen");
  EXPECT_NE(Encoder(qwen).encode(text), Encoder(whole).encode(text));
  EXPECT_EQ(qwen.decode(Encoder(qwen).encode("weft 1234\n")), "weft 1234\n");
}

// Each byte is its own token of tiktoken's form.
std::string bytes_in_base64() {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string made;
  for (int byte = 0; byte < 256; ++byte)
    made += fmt::format("{}{}== {}\n", kDigits[byte >> 2], kDigits[(byte & 3) << 4], byte);
  return made;
}

TEST(TokenizerFiles, TiktokensAreKnownByOtherNames) {
  ScratchFolder folder;
  spill_tokenizer_files(folder / "a/qwen.tiktoken", bytes_in_base64());
  EXPECT_EQ(Tokenizer(read_tokenizer(folder / "a"), "a").decode(std::vector<TokenId>{104, 105}), "hi");
  spill_tokenizer_files(folder / "a/other.tiktoken", bytes_in_base64());
  EXPECT_NE(refusal(folder / "a").find("several tokenizers, name one"), std::string::npos);
  // Meta's file has the name of SentencePiece's, and its program the special tokens.
  spill_tokenizer_files(folder / "b/tokenizer.model", bytes_in_base64());
  const Tokenizer llama(read_tokenizer(folder / "b"), "b");
  EXPECT_EQ(llama.vocabulary(), 512);
  EXPECT_EQ(llama.end_of_text(), 257);
  EXPECT_EQ(Encoder(llama).encode("<|eot_id|>", AddedTokens::parse), std::vector<TokenId>{256 + 9});
  EXPECT_EQ(Encoder(llama).encode("12345").size(), 5u);
  const TokenizerFiles files = load_tokenizer(folder / "b");
  fs::create_directories(folder / "kept");
  keep_tokenizer(files, folder / "kept");
  EXPECT_EQ(load_tokenizer(folder / "kept").hash(), files.hash());
  EXPECT_NE(refusal(folder.path()).find("holds none of"), std::string::npos);
}

TEST(TokenizerFiles, TekkenPutsSpecialTokensFirst) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  PlainJson json{
      {"config", {{"pattern", "\\p{L}+|."}, {"default_vocab_size", 261}, {"default_num_special_tokens", 4}}},
      {"vocab", PlainJson::array()}};
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text{kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
    json["vocab"].push_back({{"rank", byte}, {"token_bytes", text}});
  }
  json["vocab"].push_back({{"rank", 256}, {"token_bytes", "aGk="}});
  json["vocab"].push_back({{"rank", 257}, {"token_bytes", "aW8="}});  // above the size
  ScratchFolder folder;
  spill_tokenizer_files(folder / "tekken.json", json.dump());
  const TokenizerFiles files = load_tokenizer(folder.path());
  const Tokenizer tokenizer(files.spec, "t");
  EXPECT_EQ(tokenizer.vocabulary(), 261);
  EXPECT_EQ(tokenizer.end_of_text(), 2);
  EXPECT_EQ(Encoder(tokenizer).encode("<s>hio", AddedTokens::parse), (std::vector<TokenId>{1, 260, 'o' + 4}));
  fs::create_directories(folder / "kept");
  keep_tokenizer(files, folder / "kept");
  EXPECT_EQ(load_tokenizer(folder / "kept").hash(), files.hash());
  json["special_tokens"] = {{{"rank", 3}, {"token_str", "<x>"}}, {{"rank", 0}, {"token_str", "<y>"}}};
  spill_tokenizer_files(folder / "tekken.json", json.dump());
  const Tokenizer named(read_tokenizer(folder.path()), "t");
  EXPECT_EQ(Encoder(named).encode("<x><y><SPECIAL_1>", AddedTokens::parse), (std::vector<TokenId>{3, 0, 1}));
  json["config"]["default_vocab_size"] = 300;
  spill_tokenizer_files(folder / "tekken.json", json.dump());
  EXPECT_NE(refusal(folder.path()).find("tekken.json: vocab: 300 tokens"), std::string::npos)
      << refusal(folder.path());
  json["vocab"][1]["rank"] = 7;
  json["config"]["default_vocab_size"] = 200;
  spill_tokenizer_files(folder / "tekken.json", json.dump());
  EXPECT_NE(refusal(folder.path()).find("tekken.json: vocab[1].rank: 1 is expected"), std::string::npos);
}

TEST(TokenizerFiles, ByteLevelVocabulariesMayLackBytesWhereATokenStandsForThem) {
  PlainJson json = gpt2();
  PlainJson& model = json["model"];
  // As trained without the alphabet: 'q' and its pairs are missing.
  for (auto at = model["vocab"].begin(); at != model["vocab"].end();) {
    at = at.key().find('q') != std::string::npos ? model["vocab"].erase(at) : std::next(at);
  }
  PlainJson merges = PlainJson::array();
  for (const PlainJson& merge : model["merges"]) {
    if (merge.dump().find('q') == std::string::npos) merges.push_back(merge);
  }
  model["merges"] = merges;
  ScratchFolder folder;
  spill_tokenizer_files(folder / "tokenizer.json", json.dump());
  EXPECT_NE(refusal(folder.path()).find("byte 113 has no token, and there is no unk_token"), std::string::npos)
      << refusal(folder.path());
  model["unk_token"] = "!";
  const TokenId unknown = model["vocab"]["!"];
  for (const bool fuses : {false, true}) {
    model["fuse_unk"] = fuses;
    spill_tokenizer_files(folder / "tokenizer.json", json.dump());
    const Tokenizer tokenizer(read_tokenizer(folder.path()), "t");
    const auto count = [&](const std::string& text) {
      const std::vector<TokenId> ids = Encoder(tokenizer).encode(text);
      return std::count(ids.begin(), ids.end(), unknown);
    };
    EXPECT_EQ(count("q"), 1);
    EXPECT_EQ(count("aqb"), 1);
    EXPECT_EQ(count("aqqqb"), fuses ? 1 : 3) << fuses;
    EXPECT_EQ(count("loom"), 0);
  }
}

}  // namespace
}  // namespace heddle::data

#include "heddle/data/tokenizer/files/vocabulary_pair.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/data/tokenizer/files/tokenizer_json.h"
#include "heddle/data/tokenizer/tokenizer_spec.h"
#include "heddle/formats/json_text.h"

namespace heddle::data {

namespace {

namespace fs = std::filesystem;
using PlainJson = nlohmann::json;

constexpr int kMostPairDepth = 32;

PlainJson object_in(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return PlainJson::object();
  PlainJson json =
      formats::parse_json(read_file(path.string(), kMostTokenizerBytes), path.string(), kMostPairDepth);
  if (!json.is_object()) config_error("{}: no JSON object", path.string());
  return json;
}

PlainJson merges_in(const fs::path& path) {
  const std::string text = read_file(path.string(), kMostTokenizerBytes);
  PlainJson merges = PlainJson::array();
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    if (line.find(' ') == std::string::npos)
      config_error("{}:{}: '{}': two tokens with a space between are expected", path.string(), number,
                   escaped(line, 60));
    merges.push_back(std::move(line));
  }
  return merges;
}

std::string text_of(const PlainJson& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string())
    return token["content"].get<std::string>();
  return "";
}

// Tokens that are found as a whole, by their ids.
std::map<int64_t, PlainJson> added_tokens(const PlainJson& config, const PlainJson& added,
                                          const PlainJson& vocabulary) {
  std::map<int64_t, PlainJson> tokens;
  const auto add = [&](int64_t id, const std::string& content, bool special) {
    tokens.emplace(id, PlainJson{{"id", id}, {"content", content}, {"special", special}, {"normalized", !special}});
  };
  const PlainJson decoder = config.value("added_tokens_decoder", PlainJson::object());
  for (const auto& [key, token] : decoder.items()) {
    if (!token.is_object() || key.empty() || key.find_first_not_of("0123456789") != std::string::npos ||
        key.size() > 9)
      config_error("tokenizer_config.json: added_tokens_decoder: '{}' is no token", escaped(key, 40));
    PlainJson made = token;
    made["id"] = std::stoll(key);
    tokens.emplace(made["id"].get<int64_t>(), std::move(made));
  }
  std::vector<std::string> names{std::string(kEndOfText)};
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"})
    names.push_back(text_of(config.value(key, PlainJson())));
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    for (const PlainJson& token : config.value(key, PlainJson::array())) names.push_back(text_of(token));
  }
  for (const auto& [content, id] : added.items()) {
    if (!id.is_number_integer()) config_error("added_tokens.json: '{}' has no id", escaped(content, 40));
    add(id.get<int64_t>(), content, std::find(names.begin(), names.end(), content) != names.end());
  }
  for (const std::string& name : names) {
    const auto at = vocabulary.find(name);
    if (!name.empty() && at != vocabulary.end() && at->is_number_integer()) add(at->get<int64_t>(), name, true);
  }
  return tokens;
}

}  // namespace

std::string tokenizer_json_of(const std::string& folder) {
  const fs::path at(folder);
  const PlainJson config = object_in(at / "tokenizer_config.json");
  std::string kind = text_of(config.value("tokenizer_class", PlainJson("GPT2Tokenizer")));
  if (kind.ends_with("Fast")) kind.resize(kind.size() - 4);
  const bool qwen = kind == "Qwen2Tokenizer";
  if (!qwen && kind != "GPT2Tokenizer")
    config_error(
        "{}: tokenizer_class '{}' of {} and {}: accepted are GPT2Tokenizer, Qwen2Tokenizer; of others their "
        "tokenizer.json is read",
        (at / "tokenizer_config.json").string(), escaped(kind, 40), kVocabulary, kMerges);
  const PlainJson vocabulary = object_in(at / kVocabulary);
  PlainJson added = PlainJson::array();
  for (auto& [id, token] : added_tokens(config, object_in(at / "added_tokens.json"), vocabulary))
    added.push_back(token);
  const bool prefix = config.value("add_prefix_space", PlainJson(false)) == true;
  PlainJson bytes{
      {"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"trim_offsets", true}, {"use_regex", !qwen}};
  const PlainJson split{
      {"type", "Split"}, {"pattern", {{"Regex", kSplitWordsQwen}}}, {"behavior", "Isolated"}, {"invert", false}};
  PlainJson made{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer", qwen ? PlainJson{{"type", "NFC"}} : PlainJson()},
      {"pre_tokenizer", qwen ? PlainJson{{"type", "Sequence"}, {"pretokenizers", {split, bytes}}} : bytes},
      {"post_processor", nullptr},
      {"decoder",
       {{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges_in(at / kMerges)}, {"byte_fallback", false}}}};
  return made.dump() + "\n";
}

}  // namespace heddle::data

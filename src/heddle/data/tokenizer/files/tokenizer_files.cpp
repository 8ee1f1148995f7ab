#include "heddle/data/tokenizer/files/tokenizer_files.h"

#include <algorithm>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/hash.h"
#include "heddle/data/tokenizer/files/end_of_text.h"
#include "heddle/data/tokenizer/files/sentencepiece_model.h"
#include "heddle/data/tokenizer/files/tekken_file.h"
#include "heddle/data/tokenizer/files/tiktoken_file.h"
#include "heddle/data/tokenizer/files/vocabulary_pair.h"
#include "heddle/data/tokenizer/tokenizer.h"

namespace heddle::data {
namespace {

namespace fs = std::filesystem;

constexpr const char *kJson = "tokenizer.json", *kSentencePiece = "tokenizer.model",
                     *kTiktoken = "tokenizer.tiktoken", *kPublishedTiktoken = "tiktoken.model",
                     *kConfigFile = "tokenizer_config.json";
constexpr int64_t kMostConfigBytes = 4 << 20;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_pair(const fs::path& folder) { return is_file(folder / kVocabulary) && is_file(folder / kMerges); }

// A message's first field is a piece, whose tag no text begins with but for an empty line.
bool is_sentencepiece(std::string_view text) {
  return text.starts_with('\n') && text.find('\0') != std::string_view::npos;
}

}  // namespace

uint64_t TokenizerFiles::hash() const {
  uint64_t hash = hash_bytes(files.front().second);
  for (size_t i = 1; i < files.size(); ++i) hash = hash_bytes(files[i].second, hash);
  return hash;
}

namespace {

// The one file of tiktoken's in a folder by any name; "" where there is none. ConfigError for several.
std::string tiktoken_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".tiktoken" && is_file(at->path())) found.push_back(at->path().string());
  }
  std::sort(found.begin(), found.end());
  if (found.size() > 1)
    config_error("{}: the folder holds several tokenizers, name one: {}", folder, fmt::join(found, ", "));
  return found.empty() ? "" : found[0];
}

// Sets the end of a text: the one that is asked for, or the one that the files beside say.
void set_end(TokenizerFiles& tokenizer, const std::string& path, const std::string& asked) {
  TokenizerSpec& spec = tokenizer.spec;
  const TokenId usual = spec.end_of_text >= 0 ? spec.end_of_text : named_end_of_text(spec);
  TokenId end = -1;
  if (!asked.empty()) {
    end = token_named(spec, asked);
    if (end < 0) {
      std::vector<std::string> names;
      for (const AddedToken& added : spec.added) names.push_back(added.content);
      config_error("data.end_of_text: {} has no token '{}'{}", path, escaped(asked, 60),
                   did_you_mean(asked, names));
    }
  } else {
    end = end_beside(spec, fs::path(path).parent_path().string());
  }
  if (end < 0 || end == usual) return;
  spec.end_of_text = end;
  tokenizer.files.emplace_back(kEndFile, end_file(spec, end));
}

}  // namespace

TokenizerFiles load_tokenizer(const std::string& path, const std::string& end_of_text) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const std::string kept = tokenizer_in(path);
    if (kept.empty()) {
      config_error("{}: the folder holds none of {}, {}, {}, {}, {}, NAME.tiktoken, {} with {}", path, kJson,
                   kTekken, kSentencePiece, kTiktoken, kPublishedTiktoken, kVocabulary, kMerges);
    }
    return load_tokenizer(kept, end_of_text);
  }
  TokenizerFiles tokenizer;
  const fs::path name = fs::path(path).filename();
  const bool pair = (name == kVocabulary || name == kMerges) && is_pair(fs::path(path).parent_path());
  std::string text =
      pair ? tokenizer_json_of(fs::path(path).parent_path().string()) : read_file(path, kMostTokenizerBytes);
  const size_t first = std::min(text.find_first_not_of(" \t\r\n\xef\xbb\xbf"), text.size());
  if (name.string().starts_with(fs::path(kTekken).stem().string()) && name.extension() == ".json") {
    auto [tokens, config] = tekken_as_tiktoken(text, path);
    tokenizer.spec = parse_tiktoken(tokens, config, path);
    tokenizer.files.emplace_back(kTiktoken, std::move(tokens));
    tokenizer.files.emplace_back(kConfigFile, tiktoken_config(tokenizer.spec));
  } else if (is_sentencepiece(text)) {
    tokenizer.spec = parse_sentencepiece_model(text, path);
    tokenizer.files.emplace_back(kSentencePiece, std::move(text));
  } else if (first == text.size() || text[first] == '{' || path.ends_with(".json")) {
    tokenizer.spec = parse_tokenizer_json(text, path);
    tokenizer.files.emplace_back(kJson, std::move(text));
  } else {
    const fs::path config = fs::path(path).parent_path() / kConfigFile;
    tokenizer.spec =
        parse_tiktoken(text, is_file(config) ? read_file(config.string(), kMostConfigBytes) : "", path);
    tokenizer.files.emplace_back(kTiktoken, std::move(text));
    tokenizer.files.emplace_back(kConfigFile, tiktoken_config(tokenizer.spec));
  }
  set_end(tokenizer, path, end_of_text);
  return tokenizer;
}

std::string tokenizer_in(const std::string& folder) {
  for (const char* name : {kJson, kTekken, kSentencePiece, kTiktoken, kPublishedTiktoken}) {
    const fs::path path = fs::path(folder) / name;
    if (is_file(path)) return path.string();
  }
  const std::string tiktoken = tiktoken_in(folder);
  if (!tiktoken.empty()) return tiktoken;
  return is_pair(folder) ? (fs::path(folder) / kVocabulary).string() : "";
}

void keep_tokenizer(const TokenizerFiles& tokenizer, const std::string& folder) {
  // The one to be read comes last, so that it never stands without what it needs.
  for (size_t i = tokenizer.files.size(); i-- > 0;) {
    const auto& [name, text] = tokenizer.files[i];
    write_file((fs::path(folder) / name).string(), text);
  }
}

}  // namespace heddle::data

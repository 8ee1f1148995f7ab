#include "heddle/data/tokenizer/files/tokenizer_files.h"

#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/hash.h"
#include "heddle/data/tokenizer/files/sentencepiece_model.h"
#include "heddle/data/tokenizer/files/tiktoken_file.h"

namespace heddle::data {
namespace {

namespace fs = std::filesystem;

constexpr const char *kJson = "tokenizer.json", *kSentencePiece = "tokenizer.model",
                     *kTiktoken = "tokenizer.tiktoken", *kPublishedTiktoken = "tiktoken.model",
                     *kConfig = "tokenizer_config.json";
constexpr int64_t kMostConfigBytes = 4 << 20;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

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

TokenizerFiles load_tokenizer(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const std::string kept = tokenizer_in(path);
    if (kept.empty()) {
      config_error("{}: the folder holds none of {}, {}, {}, {}", path, kJson, kSentencePiece, kTiktoken,
                   kPublishedTiktoken);
    }
    return load_tokenizer(kept);
  }
  TokenizerFiles tokenizer;
  std::string text = read_file(path, kMostTokenizerBytes);
  const size_t first = std::min(text.find_first_not_of(" \t\r\n\xef\xbb\xbf"), text.size());
  if (is_sentencepiece(text)) {
    tokenizer.spec = parse_sentencepiece_model(text, path);
    tokenizer.files.emplace_back(kSentencePiece, std::move(text));
  } else if (first == text.size() || text[first] == '{' || path.ends_with(".json")) {
    tokenizer.spec = parse_tokenizer_json(text, path);
    tokenizer.files.emplace_back(kJson, std::move(text));
  } else {
    const fs::path config = fs::path(path).parent_path() / kConfig;
    tokenizer.spec =
        parse_tiktoken(text, is_file(config) ? read_file(config.string(), kMostConfigBytes) : "", path);
    tokenizer.files.emplace_back(kTiktoken, std::move(text));
    tokenizer.files.emplace_back(kConfig, tiktoken_config(tokenizer.spec));
  }
  return tokenizer;
}

std::string tokenizer_in(const std::string& folder) {
  for (const char* name : {kJson, kSentencePiece, kTiktoken, kPublishedTiktoken}) {
    const fs::path path = fs::path(folder) / name;
    if (is_file(path)) return path.string();
  }
  return "";
}

void keep_tokenizer(const TokenizerFiles& tokenizer, const std::string& folder) {
  // The one to be read comes last, so that it never stands without what it needs.
  for (size_t i = tokenizer.files.size(); i-- > 0;) {
    const auto& [name, text] = tokenizer.files[i];
    write_file((fs::path(folder) / name).string(), text);
  }
}

}  // namespace heddle::data

#include "heddle/data/tokenizer/files/end_of_text.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/data/tokenizer/tokenizer.h"
#include "heddle/formats/json_text.h"

namespace heddle::data {

namespace {

namespace fs = std::filesystem;
using PlainJson = nlohmann::json;

constexpr int64_t kMostBytes = 16 << 20;
constexpr int kMostDepth = 64;
constexpr const char* kEndKey = "end_of_text";

// The named member of a file that may not be there; null: it has none.
PlainJson member(const fs::path& path, const char* key) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return nullptr;
  const PlainJson json = formats::parse_json(read_file(path.string(), kMostBytes), path.string(), kMostDepth);
  return json.is_object() && json.contains(key) ? json[key] : PlainJson();
}

// A token is a text, an object with its "content", or an id; of a list the first counts.
TokenId token_in(const TokenizerSpec& spec, const PlainJson& said) {
  if (said.is_array()) return said.empty() ? -1 : token_in(spec, said[0]);
  if (said.is_string()) return token_named(spec, said.get<std::string>());
  if (said.is_object()) return said.contains("content") ? token_in(spec, said["content"]) : -1;
  if (said.is_number_integer()) return token_named(spec, said.dump());
  return -1;
}

bool has_id(const TokenizerSpec& spec, int64_t id) {
  const bool listed = id >= 0 && id < std::ssize(spec.tokens) && !spec.tokens[id].empty();
  return listed ||
         std::any_of(spec.added.begin(), spec.added.end(), [&](const AddedToken& t) { return t.id == id; });
}

}  // namespace

TokenId token_named(const TokenizerSpec& spec, const std::string& name) {
  for (const AddedToken& added : spec.added) {
    if (added.content == name) return added.id;
  }
  const auto at = std::find(spec.tokens.begin(), spec.tokens.end(), name);
  if (!name.empty() && at != spec.tokens.end()) return static_cast<TokenId>(at - spec.tokens.begin());
  int64_t id = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
  const bool number = error == std::errc() && end == name.data() + name.size();
  return number && id < kMostTokens && has_id(spec, id) ? static_cast<TokenId>(id) : -1;
}

TokenId end_beside(const TokenizerSpec& spec, const std::string& folder) {
  const fs::path beside(folder);
  if (const PlainJson kept = member(beside / kEndFile, kEndKey); !kept.is_null()) {
    const TokenId id = token_in(spec, kept);
    if (id < 0)
      config_error("{}: the tokenizer has no token {}", (beside / kEndFile).string(), formats::shown(kept));
    return id;
  }
  if (spec.end_of_text >= 0 || named_end_of_text(spec) >= 0) return -1;
  for (const auto& [file, key] : {std::pair("tokenizer_config.json", "eos_token"),
                                  {"special_tokens_map.json", "eos_token"},
                                  {"generation_config.json", "eos_token_id"},
                                  {"config.json", "eos_token_id"}}) {
    if (const TokenId id = token_in(spec, member(beside / file, key)); id >= 0) return id;
  }
  return -1;
}

std::string end_file(const TokenizerSpec& spec, TokenId id) {
  for (const AddedToken& added : spec.added) {
    if (added.id == id) return PlainJson{{kEndKey, added.content}}.dump(1) + "\n";
  }
  return PlainJson{{kEndKey, id}}.dump(1) + "\n";
}

}  // namespace heddle::data

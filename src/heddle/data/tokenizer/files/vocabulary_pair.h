// vocab.json with merges.txt, the two files of byte-level tokenizers before there was tokenizer.json (GPT-2, Qwen
// 2).
#pragma once

#include <string>

namespace heddle::data {

inline constexpr const char *kVocabulary = "vocab.json", *kMerges = "merges.txt";

/// The tokenizer.json that says the same as the folder's two files, with what tokenizer_config.json and
/// added_tokens.json beside them say. ConfigError for files that cannot be read, or of another class of tokenizer.
std::string tokenizer_json_of(const std::string& folder);

}  // namespace heddle::data

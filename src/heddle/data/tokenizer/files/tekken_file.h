// Mistral's tekken.json: tokens in base64 by rank, the pattern that cuts text, and special tokens ahead of the
// others.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace heddle::data {

inline constexpr const char* kTekken = "tekken.json";

/// The tiktoken file that says the same, and its tokenizer_config.json. ConfigError for what is none.
std::pair<std::string, std::string> tekken_as_tiktoken(std::string_view text, const std::string& name);

}  // namespace heddle::data

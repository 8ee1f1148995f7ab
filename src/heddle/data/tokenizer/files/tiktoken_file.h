// Reads tiktoken's files of tokens: a line holds the token's bytes in base64, a space, and its id, which is its
// rank.
//
// The file says neither how text is cut nor which tokens are special. That comes from a tokenizer_config.json (its
// `pat_str` and `added_tokens_decoder`; Kimi's, whose pattern stands in its program, is known by `auto_map`), or
// from the file's name where it is that of a published encoding.
#pragma once

#include <string>
#include <string_view>

#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

/// `name` is the file's path, for messages and as the name of its encoding; `config` the text of the
/// tokenizer_config.json beside it, or "". ConfigError for all that isn't accepted.
TokenizerSpec parse_tiktoken(std::string_view text, std::string_view config, const std::string& name);

/// A tokenizer_config.json by which parse_tiktoken gives the same spec whatever the file is called.
std::string tiktoken_config(const TokenizerSpec& spec);

}  // namespace heddle::data

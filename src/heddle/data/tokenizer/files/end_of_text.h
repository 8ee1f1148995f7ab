// The token that ends a document, where the tokenizer itself does not say: the files that other tools leave beside
// it.
#pragma once

#include <string>

#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

/// The file that keeps the choice beside a tokenizer that is kept: {"end_of_text": "<|stop|>"}.
inline constexpr const char* kEndFile = "end_of_text.json";

/// The id of a token by its text, or by the id itself as a number; -1 where the tokenizer has none such.
TokenId token_named(const TokenizerSpec& spec, const std::string& name);
/// The end of a text by the files of the folder: kEndFile. A tokenizer without a token of a known name
/// (Tokenizer::end_of_text) also takes the first of these: "eos_token" of tokenizer_config.json and
/// special_tokens_map.json, "eos_token_id" of generation_config.json and config.json. -1: nothing. ConfigError for
/// files that cannot be read.
TokenId end_beside(const TokenizerSpec& spec, const std::string& folder);
/// The text of kEndFile.
std::string end_file(const TokenizerSpec& spec, TokenId id);

}  // namespace heddle::data

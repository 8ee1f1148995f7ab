// Reads SentencePiece's .model (sentencepiece_model.proto): BPE and unigram, byte fallback, user-defined pieces,
// its normalizer with its map of characters. Models of words and of characters are refused by name.
#pragma once

#include <string>
#include <string_view>

#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

/// `name` is the file's name for messages. ConfigError for all that isn't accepted.
TokenizerSpec parse_sentencepiece_model(std::string_view bytes, const std::string& name);

}  // namespace heddle::data

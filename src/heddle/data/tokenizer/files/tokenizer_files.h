// The files that a tokenizer is read from: tokenizer.json, SentencePiece's .model, tiktoken's, told apart by what
// they hold, vocab.json with merges.txt, and how a folder keeps one.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "heddle/data/tokenizer/files/tokenizer_json.h"
#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

/// Files by the names under which a folder keeps them; the first is the one to read.
struct TokenizerFiles {
  std::vector<std::pair<std::string, std::string>> files;
  TokenizerSpec spec;

  uint64_t hash() const;
};

/// Loads a file, or a folder that keeps one. `end_of_text` ends a text, a token's text or its id; empty: what the
/// tokenizer says, or a file beside it. ConfigError for what isn't accepted.
TokenizerFiles load_tokenizer(const std::string& path, const std::string& end_of_text = "");
inline TokenizerSpec read_tokenizer(const std::string& path) { return load_tokenizer(path).spec; }

/// The path of the tokenizer that a folder keeps, or "".
std::string tokenizer_in(const std::string& folder);
/// Writes the files into the folder, each atomically.
void keep_tokenizer(const TokenizerFiles& tokenizer, const std::string& folder);

}  // namespace heddle::data

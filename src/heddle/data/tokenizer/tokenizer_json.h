// Reads and writes Hugging Face's tokenizer.json for byte-level BPE.
//
// Read: model BPE (merges as "a b" or ["a", "b"], ignore_merges, added tokens); pre-tokenizers ByteLevel, Split
// (behaviour Isolated), Digits, and Sequences of them, which covers GPT-2, Llama 3, DeepSeek-V3 and kin. What would
// change ids and isn't known here (a normalizer, byte_fallback, Metaspace, ...) is refused by one line that names
// its place in the file. The post-processor is left alone: beginnings and ends of documents are this engine's to
// write.
//
// Tokens stand in the file in GPT-2's alphabet: each byte is one printable character.
#pragma once

#include <string>
#include <string_view>

#include "heddle/data/tokenizer/tokenizer.h"

namespace heddle::data {

/// The spec a tokenizer.json holds. `name` is the file's name for messages. ConfigError for all that isn't
/// accepted.
TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& name);

/// The file's text, which the `tokenizers` library loads to the same ids. The spec must have bytes for every id.
std::string tokenizer_json(const TokenizerSpec& spec);

/// Reads the file (at most 64 MiB).
TokenizerSpec read_tokenizer(const std::string& path);
/// Writes the file, atomically.
void write_tokenizer(const std::string& path, const TokenizerSpec& spec);

}  // namespace heddle::data

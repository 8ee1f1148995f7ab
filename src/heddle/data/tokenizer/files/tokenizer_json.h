// Reads Hugging Face's tokenizer.json, and writes byte-level BPE as one.
//
// Read: models BPE (merges as "a b" or ["a", "b"], byte_fallback, unk_token, ignore_merges) and Unigram; added
// tokens. Steps read: normalizers NFC, NFD, NFKC, NFKD, Replace, Prepend; pre-tokenizers ByteLevel, Split, Digits,
// Metaspace; post-processors ByteLevel and TemplateProcessing; and Sequences of them. That covers GPT-2, LLaMA 2
// and 3, Mixtral, DeepSeek-V2 and V3, Qwen 2 and 3, GLM-4.5, GPT-OSS and kin. Anything that would change ids and
// isn't known here (WordPiece, Precompiled, BertNormalizer, single_word, ...) is refused by one line that names its
// place in the file.
//
// Byte-level tokens stand in the file in GPT-2's alphabet: each byte is one printable character.
#pragma once

#include <string>
#include <string_view>

#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

/// The largest file of a tokenizer that is read.
inline constexpr int64_t kMostTokenizerBytes = 64 << 20;

/// The spec a tokenizer.json holds. `name` is the file's name for messages. ConfigError for all that isn't
/// accepted.
TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& name);

/// The file's text, which the `tokenizers` library loads to the same ids. Only of bytes merged in a given order.
std::string tokenizer_json(const TokenizerSpec& spec);

/// Writes the file, atomically.
void write_tokenizer(const std::string& path, const TokenizerSpec& spec);

}  // namespace heddle::data

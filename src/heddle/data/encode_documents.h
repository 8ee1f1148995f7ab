// Documents to token ids on several threads: one reads, the others encode, and what they made comes out in the
// order of the documents. The memory is bounded: so many batches are under way, however long the text is.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "heddle/data/corpus/text_files.h"
#include "heddle/data/tokenizer/tokenizer.h"

namespace heddle::data {

struct EncodedDocument {
  std::string_view text;
  std::span<const TokenId> ids;  // as Encoder::encode_document has them
  uint64_t hash = 0;             // of the text
};

/// Gives every document of the source to `use`, on the caller's thread. `threads` encode; 1: the caller itself
/// does.
void encode_documents(DocumentSource& source, const Tokenizer& tokenizer, int threads,
                      const std::function<void(const EncodedDocument&)>& use);

}  // namespace heddle::data

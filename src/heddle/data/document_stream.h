// Some of a token file's documents, one after another, as a stream of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "heddle/base/begins.h"
#include "heddle/data/token_file.h"

namespace heddle::data {

class DocumentStream {
 public:
  /// The documents of the stream; asked again at every reading.
  using Chosen = std::function<bool(int64_t document)>;

  /// The documents of `file`, which outlives this, that each choice takes: one pass over its index for all.
  static std::vector<DocumentStream> of(const TokenFile& file, const std::vector<Chosen>& choices);

  int64_t tokens() const { return tokens_; }
  /// Copies ids from `position` of the stream on, and marks where documents begin, unless `begins` is empty.
  /// ConfigError if one is negative or not below `vocabulary`.
  void read(int64_t position, int64_t vocabulary, std::span<int32_t> tokens, std::span<Begins> begins = {}) const;

 private:
  DocumentStream(const TokenFile& file, Chosen chosen) : file_(&file), chosen_(std::move(chosen)) {}

  const TokenFile* file_;
  Chosen chosen_;
  int64_t tokens_ = 0;
  std::vector<int64_t> tokens_before_;  // every so many documents: tokens of this stream before it
};

}  // namespace heddle::data

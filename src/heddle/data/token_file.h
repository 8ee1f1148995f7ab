// Token ids on disk in Megatron's two files, PREFIX.bin and PREFIX.idx (little-endian).
//
//   .bin  the ids of all documents one after another: u16 for vocabularies below 65,500, else i32
//   .idx  9 bytes "MMIDIDX\0\0"; u64 version = 1; u8 element type (8 u16, 4 i32); u64 sequences; u64 document
//         marks; i32 length of each sequence; i64 byte offset of each; i64 document marks (first sequence of each
//         document, then the number of sequences); possibly one byte a sequence ("modes", not used)
//
//   .weights  where there is such a file: a byte for each id, 1 where it is a target of the loss and 0 where it is
//         only read; or an f32 for each, how much it counts as one. Each document is then a sample: a prompt with
//         its answer, a conversation
//
//   .firsts   where there is such a file: an i64 for each document, the number of the first one with the same text,
//             by which a repeated document stands on the same side of the split as that one
//
// The layout is that of megatron/core/datasets/indexed_dataset.py. Heddle writes one sequence a document.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/files/input_file.h"
#include "heddle/base/files/output_file.h"
#include "heddle/data/tokenizer/tokenizer.h"

namespace heddle::data {

/// The most that a target may count.
inline constexpr float kMostWeight = 1e6F;

class TokenFileWriter {
 public:
  /// Writes PREFIX.bin and PREFIX.idx when committed. Holds four bytes a document in memory. `any_weights`: of
  /// samples, else 0 and 1 alone.
  TokenFileWriter(const std::string& prefix, int64_t vocabulary, bool any_weights = false);
  /// Appends a document, which ought to end with the end-of-text token.
  void add_document(std::span<const TokenId> ids);
  /// Appends a sample, with a weight for each id. All documents of a file are samples, or none is.
  void add_sample(std::span<const TokenId> ids, std::span<const float> weights);
  /// The document that was added last has the text of an earlier one.
  void repeats(int64_t first);
  /// Both files appear, or (on SystemError) what stood there before remains or at worst lacks its .idx.
  void commit();

  int64_t documents() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t tokens() const { return tokens_; }

 private:
  std::string prefix_;
  int64_t vocabulary_;
  bool narrow_, any_weights_;
  OutputFile bin_;
  std::unique_ptr<OutputFile> weights_;
  std::vector<int32_t> lengths_;
  std::vector<std::pair<int64_t, int64_t>> repeats_;  // documents with the first ones of their text
  int64_t tokens_ = 0;
};

class TokenFile {
 public:
  /// Opens PREFIX.bin and PREFIX.idx, of which nothing is kept in memory. ConfigError naming the file and what is
  /// wrong unless every size agrees. Reads below raise SystemError when a file was cut short since.
  explicit TokenFile(const std::string& prefix);

  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }
  /// The position of a document's first token; `documents()` gives tokens().
  int64_t document_begin(int64_t document) const;
  /// The begins of documents first, first + 1, …: two reads, mostly, for all of them.
  void document_begins(int64_t first, std::span<int64_t> begins) const;
  /// Copies ids from `position` on. The ids are not checked.
  void read(int64_t position, std::span<TokenId> ids) const;
  /// ConfigError naming file, position, id and limit if an id within the range is negative or not below
  /// `vocabulary`.
  void check_ids(int64_t position, int64_t count, int64_t vocabulary) const;

  /// The first document with the same text as this one, as far as that is known.
  int64_t first_alike(int64_t document) const;

  const std::string& bin_path() const { return bin_.path(); }
  /// True if ids have weights, and if these are any but 0 and 1; then the weights from `position` on.
  bool has_weights() const { return weights_ != nullptr; }
  bool has_any_weights() const { return has_weights() && weights_->size_bytes() != tokens_; }
  void read_weights(int64_t position, std::span<float> weights) const;

 private:
  void check_sequences();
  void check_marks() const;

  InputFile idx_, bin_;
  std::unique_ptr<InputFile> weights_, firsts_;
  bool narrow_ = false;
  int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
  int64_t offsets_at_ = 0, marks_at_ = 0;  // bytes of .idx at which these tables of i64 begin
};

}  // namespace heddle::data

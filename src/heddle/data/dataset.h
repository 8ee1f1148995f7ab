// Training and held-out sequences out of token files.
//
// A hash deals a file's documents into held-out and training ones, unless a file of its own is held out. It hashes
// a document's number (of a repeated one that of the first like it). Each side's documents, one after another, are
// a stream of tokens cut into sequences:
//
//   sequence i = tokens [i L, i L + L + 1 + D) of the stream
//
// L inputs, each with its next token as target, and D more for multi-token prediction at depths 1 .. D. Sequences
// overlap by the 1 + D tokens that are targets only. Where the documents of a file are samples whose ids have
// weights, they are packed whole (PackedSamples), or come in pairs (PairedSamples), which stay together. Training
// sequences come in a random order, another one each epoch, that is a pure function of (seed, epoch, place).
// Several files take turns as a Blend says, each in its own order and with its own epochs. So the state of the data
// is the number of sequences consumed. The batch of a step is the sequences [step B, (step + 1) B) of that order
// whatever the layout of ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/long_samples.h"
#include "heddle/data/blend.h"
#include "heddle/data/document_stream.h"
#include "heddle/data/sequence_source.h"
#include "heddle/data/token_file.h"

namespace heddle::data {

/// The share of documents held out unless told otherwise.
inline constexpr double kHeldoutFraction = 0.02;

/// True if a document is held out: a hash of its number falls below the fraction. Document 0 never is.
bool is_heldout(int64_t document, double fraction);

struct DatasetOptions {
  std::vector<BlendPart> parts;   // prefixes of .bin and .idx
  std::string validation;         // the prefix of what is held out; empty: a share of the parts
  int64_t sequence_length = 0;    // L
  int64_t prediction_depths = 0;  // D
  int64_t vocabulary = 0;         // of the model: the limit of ids
  double heldout_fraction = kHeldoutFraction;
  uint64_t seed = 0;
  LongSamples long_samples = LongSamples::refuse;
  bool pairs = false;  // documents are pairs of answers (PairedSamples)
};

class Dataset {
 public:
  /// ConfigError if the files are wrong, or the training documents of a file hold less than one sequence. Also if
  /// an id reaches the vocabulary: at once for files up to 64 M tokens, else when the sequence is asked for.
  explicit Dataset(const DatasetOptions& options);

  /// Sequences of one epoch, of all parts.
  int64_t train_sequences() const;
  int64_t heldout_sequences() const { return heldout_sequences_; }
  /// Number of times that the part that is read most has been read after so many training sequences.
  double most_epochs(double sequences) const;
  /// L + 1 + D: the size of the spans below.
  int64_t sequence_tokens() const { return options_.sequence_length + 1 + options_.prediction_depths; }
  int32_t vocabulary() const { return static_cast<int32_t>(options_.vocabulary); }

  /// The `global_index`-th training sequence since the run began; any number of epochs.
  void train_sequence(int64_t global_index, std::span<int32_t> tokens, const SequenceMarks& marks = {}) const;
  /// The number within an epoch's train_sequences() of a sequence; and the sequence of a number.
  int64_t train_number(int64_t global_index) const;
  void numbered_sequence(int64_t number, std::span<int32_t> tokens, const SequenceMarks& marks = {}) const;
  /// Held-out sequences stand in the order of the file; those of several take turns by the blend's shares.
  void heldout_sequence(int64_t index, std::span<int32_t> tokens, const SequenceMarks& marks = {}) const;
  /// True if any id of a text is masked; and true if targets have weights other than 1.
  bool masks() const;
  bool weighs() const;

  int64_t train_tokens() const;
  int64_t heldout_tokens() const;
  /// The training files, in the order of the parts.
  const std::vector<std::unique_ptr<TokenFile>>& files() const { return files_; }
  /// The file that is held out whole, or null.
  const TokenFile* validation() const { return validation_.get(); }
  /// Totals of all training files, held-out documents among them.
  int64_t documents() const;
  int64_t tokens() const;

 private:
  using Source = std::unique_ptr<SequenceSource>;
  /// The sequences of those documents that each choice takes.
  std::vector<Source> cut(const TokenFile& file, const std::vector<DocumentStream::Chosen>& choices) const;
  void open_parts();
  void open_heldout(std::vector<Source> sides);
  void check(const TokenFile& file) const;
  void fill(const SequenceSource& from, int64_t sequence, std::span<int32_t> tokens,
            const SequenceMarks& marks) const;
  int64_t together() const { return options_.pairs ? 2 : 1; }

  DatasetOptions options_;
  std::vector<std::unique_ptr<TokenFile>> files_;
  std::unique_ptr<TokenFile> validation_;
  std::vector<Source> train_, heldout_;  // held out: only those that fill a sequence
  Blend blend_, heldout_blend_{{1}};
  int64_t heldout_sequences_ = 0;
};

}  // namespace heddle::data

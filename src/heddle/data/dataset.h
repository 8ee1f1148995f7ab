// Training and held-out sequences out of a token file.
//
// Documents are dealt by a hash of their number into held-out and training ones; each side's documents, one after
// another, are a stream of tokens cut into sequences:
//
//   sequence i = tokens [i L, i L + L + 1 + D) of the stream
//
// L inputs, each with its next token as target, and D more for multi-token prediction at depths 1 .. D. Sequences
// overlap by the 1 + D tokens that are targets only. Training sequences come in a random order, another one each
// epoch, that is a pure function of (seed, epoch, place): the state of the data is the number of sequences
// consumed, and the batch of a step is the sequences [step B, (step + 1) B) of that order whatever the layout of
// ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heddle/data/token_file.h"

namespace heddle::data {

/// The share of documents held out unless told otherwise.
inline constexpr double kHeldoutFraction = 0.02;

/// Whether a document is held out: a hash of its number falls below the fraction. Document 0 never is.
bool is_heldout(int64_t document, double fraction);

struct DatasetOptions {
  std::string prefix;             // PREFIX.bin and PREFIX.idx
  int64_t sequence_length = 0;    // L
  int64_t prediction_depths = 0;  // D
  int64_t vocabulary = 0;         // of the model: the limit of ids
  double heldout_fraction = kHeldoutFraction;
  uint64_t seed = 0;
};

class Dataset {
 public:
  /// ConfigError if the files are wrong, an id reaches the vocabulary (at once for files up to 64 M tokens, else
  /// when the sequence is asked for), or the training documents hold less than one sequence.
  explicit Dataset(const DatasetOptions& options);

  /// Sequences of one epoch.
  int64_t train_sequences() const { return train_.sequences; }
  int64_t heldout_sequences() const { return heldout_.sequences; }
  /// L + 1 + D: the size of the spans below.
  int64_t sequence_tokens() const { return options_.sequence_length + 1 + options_.prediction_depths; }
  int32_t vocabulary() const { return static_cast<int32_t>(options_.vocabulary); }

  /// The `global_index`-th training sequence since the run began; any number of epochs.
  void train_sequence(int64_t global_index, std::span<int32_t> tokens) const;
  /// Held-out sequences stand in the order of the file.
  void heldout_sequence(int64_t index, std::span<int32_t> tokens) const;

  int64_t train_tokens() const { return train_.tokens; }
  int64_t heldout_tokens() const { return heldout_.tokens; }
  const TokenFile& file() const { return file_; }

 private:
  struct Side {
    bool heldout;
    int64_t tokens = 0, sequences = 0;
    std::vector<int64_t> tokens_before;  // every kStride-th document: tokens of this side before it
  };
  void fill(const Side& side, int64_t position, std::span<int32_t> tokens) const;

  DatasetOptions options_;
  TokenFile file_;
  Side train_{false}, heldout_{true};
};

}  // namespace heddle::data

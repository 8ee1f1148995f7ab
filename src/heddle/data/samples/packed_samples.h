// Samples, each a document whose ids have weights, packed whole into sequences.
//
// Best fit, the longest first (best-fit decreasing): each sample goes where it leaves the least room, into the
// earliest of such sequences, or else begins one. So the sequences are a pure function of the samples' lengths and
// L, the same for every layout of ranks and every epoch. Only their samples' numbers are stored. A sequence holds
// up to L + 1 ids, for the last is a target alone; what is left of it, and the D ids behind, is padding, which is
// nobody's target.
//
// Targets are the ids of weight 1, but for the first id of a sample: before it stands another sample, or nothing.
#pragma once

#include <functional>
#include <vector>

#include "heddle/base/long_samples.h"
#include "heddle/data/sequence_source.h"
#include "heddle/data/token_file.h"

namespace heddle::data {

class PackedSamples : public SequenceSource {
 public:
  /// The samples of `file`, which outlives this, that are chosen. ConfigError when one is too long and `longer`
  /// refuses it.
  PackedSamples(const TokenFile& file, int64_t sequence_length, LongSamples longer,
                const std::function<bool(int64_t document)>& chosen);

  int64_t sequences() const override { return static_cast<int64_t>(first_.size()) - 1; }
  int64_t tokens() const override { return tokens_; }
  int64_t samples() const { return static_cast<int64_t>(order_.size()); }
  /// Samples that were cut or left out, as `longer` says.
  int64_t changed() const { return changed_; }
  void read(int64_t sequence, int64_t vocabulary, std::span<int32_t> tokens,
            const SequenceMarks& marks) const override;

 private:
  struct Sample {
    int64_t document, begin, size;
  };
  std::vector<Sample> fitting(const std::function<bool(int64_t)>& chosen);
  void pack(std::vector<Sample> samples);

  const TokenFile* file_;
  int64_t most_;  // ids a sequence
  LongSamples longer_;
  std::vector<int64_t> order_;  // samples' documents, by sequence
  std::vector<int64_t> first_;  // of each sequence: where its samples begin in order_; and their number
  int64_t tokens_ = 0, changed_ = 0;
};

}  // namespace heddle::data

// Pairs of samples, two answers to one prompt: documents 2p and 2p + 1 of a token file are the preferred one and
// the other. Each is a sequence of its own, behind it padding, and both come together.
#pragma once

#include <functional>
#include <vector>

#include "heddle/base/long_samples.h"
#include "heddle/data/sequence_source.h"
#include "heddle/data/token_file.h"

namespace heddle::data {

class PairedSamples : public SequenceSource {
 public:
  /// The pairs of `file`, which outlives this, that are chosen. ConfigError when an answer is too long and `longer`
  /// refuses it, or when the file holds no pairs.
  PairedSamples(const TokenFile& file, int64_t sequence_length, LongSamples longer,
                const std::function<bool(int64_t pair)>& chosen);

  int64_t sequences() const override { return 2 * std::ssize(pairs_); }
  int64_t together() const override { return 2; }
  int64_t tokens() const override { return tokens_; }
  void read(int64_t sequence, int64_t vocabulary, std::span<int32_t> tokens,
            const SequenceMarks& marks) const override;

 private:
  bool fits(int64_t pair, std::span<const int64_t> begins, int64_t& longest) const;

  const TokenFile* file_;
  int64_t most_;  // ids a sequence
  LongSamples longer_;
  std::vector<int64_t> pairs_;
  int64_t tokens_ = 0;
};

}  // namespace heddle::data

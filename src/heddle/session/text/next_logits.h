// The logits of the token after a text: worked out anew of the whole text, or with a cache that holds what
// attention reads of the tokens before. Both give the same but for the order in which sums are rounded.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "heddle/train/trainer.h"

namespace heddle::session {

class NextLogits {
 public:
  /// The tokens of one of several texts, each with its number.
  struct Asked {
    int64_t text = 0;
    std::span<const int32_t> tokens;  // tokens of the text, at most the trainer's sequence_length
  };
  virtual ~NextLogits() = default;
  /// The logits of each text that is asked for. A text may be asked for with any tokens; it is fast where they go
  /// on from those of the last time.
  virtual std::vector<std::vector<float>> after(std::span<const Asked> asked) = 0;
};

std::unique_ptr<NextLogits> logits_anew(train::Trainer& trainer);

/// Makes logits for texts 0 up to the trainer's Plan::cached_sequences. Tokens that a text shares with those that
/// are held are not computed again. A few others are read one by one; many are read by reading the text from its
/// beginning. The choice depends on the text alone, so a text's logits have the same bits whatever is beside it.
std::unique_ptr<NextLogits> logits_from_cache(train::Trainer& trainer);

}  // namespace heddle::session

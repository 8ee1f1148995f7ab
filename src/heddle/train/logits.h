// Logits that a trainer's weights give after a text, with and without a cache of what has been read. All ranks call
// these together; the result is the same on every rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/train/trainer.h"

namespace heddle::train {

/// Logits of the token after `tokens` (at most sequence_length of them).
std::vector<float> next_logits(Trainer& trainer, std::span<const int32_t> tokens);

/// A token with its place in the cache.
struct Placed {
  int64_t sequence = 0, position = 0;
  int32_t token = 0;
  std::span<const int32_t> before = {};  // the sequence's tokens ahead of it, of which n-grams read the last
};
/// Logits with a cache (Plan::cached_sequences). `prefill` reads a sequence from its beginning, which the cache
/// then holds of it. `decode` reads tokens that go on from what is held, at most cached_sequences of them, and
/// holds them too; several of one sequence come in order. Returns the logits after each.
std::vector<float> prefill(Trainer& trainer, int64_t sequence, std::span<const int32_t> tokens);
std::vector<std::vector<float>> decode(Trainer& trainer, std::span<const Placed> tokens);

}  // namespace heddle::train

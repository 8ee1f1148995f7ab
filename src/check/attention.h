// Attention by its definition, o = softmax(scale · q kᵀ + mask) v, head by head, with one thing changed.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "check/faults.h"

namespace heddle::check {

/// A position's rank of cp, and its row there: two chunks of each sequence, the same number from either end.
struct Place {
  int rank = 0;
  int64_t row = 0;
};
std::vector<Place> places_of(int64_t length, int cp);

/// One thing that attention does in another way. The default is attention as it should be, causal and without
/// windows.
struct AttentionChange {
  std::function<bool(int64_t query, int64_t key, const Place& of_query, const Place& of_key)> sees =
      [](int64_t query, int64_t key, const Place&, const Place&) { return key <= query; };
  double scale = 0;                            // of scores; 0: the model's
  std::function<int64_t(int64_t head)> group;  // whose keys a head reads; empty: the model's
  std::function<Numbers(const Whole&)>
      turn;  // queries and keys [sequences, positions, heads · width]; empty: as they are
};

/// The slice of `self_attn.core` that a rank would hold. Queries, keys and values are the reference's. Nothing
/// where the record is no such output, and for models whose attention is not this formula (latent keys, sinks).
std::optional<Numbers> changed_attention(const Seen& seen, const AttentionChange& change);

}  // namespace heddle::check

// The parts of a parameter's training state that are cut among the ranks that hold copies of it.
#pragma once

#include "heddle/base/words.h"

namespace heddle::passes {

/// Each word includes the words before it. They are stages 1, 2 and 3 of ZeRO (Rajbhandari et al., arXiv
/// 1910.02054).
enum class Shard : uint8_t {
  state,      // masters and moments
  gradients,  // and sums of gradients
  weights,    // and weights
};
constexpr auto words_of(Shard) {
  return std::to_array<Word<Shard>>(
      {{Shard::state, "state"}, {Shard::gradients, "gradients"}, {Shard::weights, "weights"}});
}

}  // namespace heddle::passes

// The user's choices for low-rank adapters (passes/adapters.h).
#pragma once

#include <cstdint>
#include <string>

namespace heddle::passes {

struct Adapters {
  int64_t rank = 0;   // 0: none, and nothing is frozen
  double alpha = 16;  // times the sum's size
  /// In the words of passes/adapter_targets.
  std::string targets = "attention";
  bool rank_stabilized = false;  // alpha ÷ √rank instead of alpha ÷ rank (Kalajdzievski, arXiv 2312.03732)
  double dropout = 0;            // of what A reads; there is none

  double scale() const;
  bool operator==(const Adapters&) const = default;
};

}  // namespace heddle::passes

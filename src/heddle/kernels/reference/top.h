// The `count` highest of a list, the lower index winning ties.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle::kernels::reference {

/// Indices in decreasing value, among those `open` (null: all). A NaN is taken only when nothing else is left.
/// Returns fewer when fewer are open.
template <class A>
std::vector<int64_t> top_in_order(std::span<const A> values, int64_t count,
                                  const std::vector<bool>* open = nullptr) {
  std::vector<bool> left = open ? *open : std::vector<bool>(values.size(), true);
  std::vector<int64_t> taken;
  while (std::ssize(taken) < count) {
    int64_t best = -1;
    for (size_t i = 0; i < values.size(); ++i) {
      if (!left[i]) continue;
      const A champion = best < 0 ? A(0) : values[best];
      if (best < 0 || values[i] > champion || (champion != champion && values[i] == values[i])) {
        best = static_cast<int64_t>(i);
      }
    }
    if (best < 0) break;
    left[best] = false;
    taken.push_back(best);
  }
  return taken;
}

}  // namespace heddle::kernels::reference

// The experts of a token id in a layer that chooses them by id, where no released table says them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "heddle/base/random.h"

namespace heddle::model {

/// `chosen` different experts of `experts`, each as likely as any other, by the key and the id alone.
inline std::vector<int64_t> hashed_experts(const RandomKey& key, int64_t id, int64_t chosen, int64_t experts) {
  std::vector<int64_t> taken;  // in order
  for (int64_t j = 0; j < chosen; ++j) {
    // One of those left, counted without the taken ones.
    auto expert =
        static_cast<int64_t>(key.bits(static_cast<uint64_t>(id * chosen + j)) % static_cast<uint64_t>(experts - j));
    for (const int64_t other : taken) expert += other <= expert ? 1 : 0;
    taken.insert(std::upper_bound(taken.begin(), taken.end(), expert), expert);
  }
  return taken;
}

/// An element of the table of all such rows.
inline int64_t hashed_expert(const RandomKey& key, int64_t element, int64_t chosen, int64_t experts) {
  return hashed_experts(key, element / chosen, chosen, experts)[static_cast<size_t>(element % chosen)];
}

}  // namespace heddle::model

// Ids of a sequence that are the first of something: what the data say of their documents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle {

enum class Begins : uint8_t {
  nothing,
  document,  // of text that goes on: the id is a label of the one before it
  sample,    // of a whole that says nothing of what follows: no label of what stands before
};

/// True if a sample begins behind place `at` of marks, up to `distance` places on.
inline bool sample_begins(const std::vector<Begins>& marks, size_t at, size_t distance) {
  for (size_t d = 1; d <= distance; ++d) {
    if (marks[at + d] == Begins::sample) return true;
  }
  return false;
}

}  // namespace heddle

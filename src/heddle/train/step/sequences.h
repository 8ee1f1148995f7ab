// The sequences of a step or of an evaluation, and which of their tokens are to be predicted.
//
// Where targets are masked, the next-token loss is the mean over the targets of the whole global batch that are
// not, and so is that of each further token; what is masked has no loss and no gradient of it, and is input all the
// same.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace heddle::train {

struct Sequences {
  std::vector<std::vector<int32_t>> tokens;  // a negative id is padding
  std::vector<std::vector<uint8_t>>
      masked;  // empty, or of each sequence: empty, or nonzero where an id is no target

  Sequences() = default;
  Sequences(std::vector<std::vector<int32_t>> ids, std::vector<std::vector<uint8_t>> mask = {})  // NOLINT
      : tokens(std::move(ids)), masked(std::move(mask)) {}

  size_t size() const { return tokens.size(); }
  bool empty() const { return tokens.empty(); }
  /// Nothing, where nothing of the sequence is masked.
  const std::vector<uint8_t>* mask_of(size_t sequence) const {
    return sequence < masked.size() && !masked[sequence].empty() ? &masked[sequence] : nullptr;
  }
  bool is_target(size_t sequence, size_t token) const {
    const std::vector<uint8_t>* mask = mask_of(sequence);
    return tokens[sequence][token] >= 0 && (mask == nullptr || (*mask)[token] == 0);
  }
  Sequences part(size_t first, size_t count) const {
    const auto of = [&](const auto& all) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
      return std::decay_t<decltype(all)>(begin, begin + static_cast<std::ptrdiff_t>(count));
    };
    return {of(tokens), masked.empty() ? masked : of(masked)};
  }
};

}  // namespace heddle::train

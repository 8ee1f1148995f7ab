// The sequences of a step or of an evaluation, and the tokens of theirs that are to be predicted.
//
// Where targets are masked, the next-token loss is the mean over the targets of the whole global batch that are
// not; so is that of each further token. A masked target has no loss and no gradient of it, and is input all the
// same. Where targets have weights, the loss is their mean by those.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "heddle/base/begins.h"

namespace heddle::train {

struct Sequences {
  std::vector<std::vector<int32_t>> tokens;  // a negative id is padding
  std::vector<std::vector<uint8_t>>
      masked;  // empty, or of each sequence: empty, or nonzero where an id is no target
  std::vector<std::vector<float>> weights;  // empty, or of each sequence: how much each id counts as a target
  std::vector<std::vector<Begins>> begins;  // empty, or of each sequence: what each id is the first of
  /// Empty, or of each sequence its loss under the model that pairs are held to; not a number where it has none.
  std::vector<double> references;

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
  /// The weight of the id `distance` places behind `place` as a label of the one there.
  double label_weight(size_t sequence, size_t place, size_t distance) const {
    if (!is_target(sequence, place + distance)) return 0;
    if (!begins.empty() && sample_begins(begins[sequence], place, distance)) return 0;
    return weights.empty() ? 1 : static_cast<double>(weights[sequence][place + distance]);
  }
  double reference(size_t sequence) const {
    return sequence < references.size() ? references[sequence] : std::numeric_limits<double>::quiet_NaN();
  }
  Sequences part(size_t first, size_t count) const {
    const auto of = [&](const auto& all) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
      return std::decay_t<decltype(all)>(begin, begin + static_cast<std::ptrdiff_t>(count));
    };
    const auto some = [&](const auto& all) { return all.empty() ? all : of(all); };
    Sequences those(of(tokens), some(masked));
    those.weights = some(weights);
    those.begins = some(begins);
    those.references = some(references);
    return those;
  }
};

}  // namespace heddle::train

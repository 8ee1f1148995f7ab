// What the `load` ops of a step read: plain data, made by the trainer, alive until the step has ended.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "heddle/base/begins.h"

namespace heddle::device {

/// The tokens of one microbatch: B sequences of S + 1 + D ids each, row-major. The first S ids of a sequence are
/// its inputs; label d of position s is id s + d, for d = 1 … D + 1 (D: prediction depths beyond the next token).
struct Microbatch {
  std::vector<int32_t> tokens;     // [B, S+1+D]; a negative id is padding: it embeds to zeros and is nobody's label
  std::vector<uint8_t> masked;     // empty, or [B, S+1+D]: nonzero where the id must not be predicted
  std::vector<float> weights;      // empty, or [B, S+1+D]: how much the id counts as a label
  std::vector<Begins> begins;      // empty, or [B, S+1+D]
  std::vector<double> references;  // empty, or [B]: the summed loss of each sequence's labels under another model
  int64_t first_sequence = 0;      // of the whole batch, which this microbatch begins with

  /// Whether the id `distance` places behind `at` is a label of the id there: it counts, and is of the same sample.
  bool is_label(size_t at, size_t distance) const {
    return tokens[at + distance] >= 0 && (masked.empty() || masked[at + distance] == 0) &&
           (begins.empty() || !sample_begins(begins, at, distance));
  }
};

struct Batch {
  std::vector<Microbatch> microbatches;  // indexed by KernelCall::microbatch
  std::vector<double> scales;            // one factor a loss term: 1 ÷ its denominator over the global batch
  std::vector<int32_t> places;           // of each row: where in the cache it stands, negative: nowhere
  std::array<double, 3> hyper{};         // learning rate, 1 − β₁ᵗ, 1 − β₂ᵗ; t counts steps from 1
  uint64_t seed = 0;                     // of the run
  int64_t step = 0;                      // from 1; with the seed it says what dropout draws
  double bias_rate = 1e-3;               // of the routers' balancing biases
  std::array<double, 2> limits{std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::infinity()};  // of the norm, of the labels' summed loss
  /// Of MoE layers whose experts are hot, by the layer's number: rows of each expert in recent steps, in
  /// proportion.
  std::map<int, std::vector<double>> expert_rows;
  /// Of MoE layers whose experts have moved, by the layer's number: the home of each expert, its holder times the
  /// places of one, plus its place. Layers that are not named have them in the order of their numbers.
  std::map<int, std::vector<int32_t>> homes;
  std::map<int, std::vector<int32_t>> next_homes;  // of layers whose experts move as the step ends: those then
  bool guessed = false;                            // the step before has updated ahead of its norm
  bool attempts = false;                           // this one may
};

}  // namespace heddle::device

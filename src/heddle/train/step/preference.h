// Preferences of a model between pairs of answers, from the losses of their sequences: the figures that a training
// step has of its own pairs (ops/preference), of any.
#pragma once

#include <cstdint>
#include <span>

#include "heddle/model/objective.h"

namespace heddle::train {

/// Means over the pairs.
struct Preference {
  double loss = 0, margin = 0, accuracy = 0;
  int64_t pairs = 0;
};

/// Figures of sequences 2p and 2p + 1: −Σ ln p of the preferred answer and of the other, and the reference's.
Preference preference_of(std::span<const double> losses, std::span<const double> references,
                         const model::Objective& objective);

}  // namespace heddle::train

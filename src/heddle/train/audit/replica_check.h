// Compares copies of the same weights on several ranks. They are updated by the same sums in the same order, so
// that a fault has changed a bit that differs.
#pragma once

#include <string>

#include "heddle/train/trainer.h"

namespace heddle::train {

/// Returns "" where all copies are alike; else the tensor that differs, and on which ranks from which others, the
/// same on every rank. All ranks call it together, between steps. Packed weights are not compared, but what they
/// are made of is, where it is held whole.
std::string differing_replica(Trainer& trainer);

}  // namespace heddle::train

// Copies of the same weights on several ranks, compared: they are updated by the same sums in the same order, so
// that a bit which differs was changed by a fault.
#pragma once

#include <string>

#include "heddle/train/trainer.h"

namespace heddle::train {

/// All ranks call it together, between steps. "" where all copies are alike; else which tensor differs, and on
/// which ranks from which others, the same on every rank. Packed weights are not looked at, but what they are made
/// of is, where it is held whole.
std::string differing_copy(Trainer& trainer);

}  // namespace heddle::train

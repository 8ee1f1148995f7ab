// A digest of the model's weights, or of their moments, that does not depend on their layout over ranks. Every rank
// adds up the sums (train/audit/digest_sums) of what it owns. It finds faults, not what an adversary hides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/model/parameter_layout.h"
#include "heddle/train/step/expert_placements.h"
#include "heddle/train/trainer.h"

namespace heddle::train {

/// The digest of one trainer's masters (or the weights that are their own), or of their moments and averages. The
/// trainer must outlive it. Frozen weights don't count.
class WeightDigest {
 public:
  enum class Of : uint8_t { weights, beside };
  explicit WeightDigest(Trainer& trainer, Of of = Of::weights);

  /// All ranks call it together, between steps; the same on every rank. 16 hexadecimal digits.
  std::string take();

 private:
  /// A run of one tensor's elements that this rank owns, short enough for one thread.
  struct Piece {
    size_t tensor;
    model::Extent extent;
  };
  void list_pieces();
  Trainer& trainer_;
  Of of_;
  ExpertPlacements placements_;  // as the pieces have them
  std::vector<uint64_t> seeds_;  // by tensor of the state
  std::vector<Piece> pieces_;
};

}  // namespace heddle::train

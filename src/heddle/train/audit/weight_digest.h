// A digest of the model's weights that does not depend on how they are laid out over ranks: two sums, modulo 2^32, of
// hashes of each element's bits with its tensor's name and its place in the whole tensor. A sum has no order, so
// every rank adds up what it owns. It finds what went wrong by itself, not what an adversary hides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/model/parameter_layout.h"
#include "heddle/train/trainer.h"

namespace heddle::train {

/// Of the masters (or the weights that are their own) of one trainer, which must outlive it; frozen ones don't
/// count.
class WeightDigest {
 public:
  explicit WeightDigest(Trainer& trainer);

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
  ExpertHomes homes_;            // as the pieces have them
  std::vector<uint64_t> seeds_;  // by tensor of the state
  std::vector<Piece> pieces_;
};

}  // namespace heddle::train

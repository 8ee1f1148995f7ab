// The tokens of one microbatch, and the inputs that a listing takes of them (ir/inputs.h). Each row that a rank
// holds has its ids, labels, weights, position, and so on.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "heddle/base/begins.h"
#include "heddle/device/inputs.h"
#include "heddle/ir/axes.h"
#include "heddle/ir/listing.h"

namespace heddle::runtime {

/// B sequences of S + 1 + D ids each, row-major. The first S ids of a sequence are its inputs; label d of position
/// s is id s + d, for d = 1 … D + 1 (D: prediction depths beyond the next token).
struct Microbatch {
  std::vector<int32_t> tokens;     // [B, S+1+D]; a negative id is padding: it embeds to zeros and is nobody's label
  std::vector<uint8_t> masked;     // empty, or [B, S+1+D]: nonzero where the id must not be predicted
  std::vector<float> weights;      // empty, or [B, S+1+D]: how much the id counts as a label
  std::vector<Begins> begins;      // empty, or [B, S+1+D]
  std::vector<double> references;  // empty, or [B]: the summed loss of each sequence's labels under another model
  std::vector<int32_t> places;     // empty, or [B·S]: where in the cache each row stands, negative: nowhere
  std::vector<int32_t> before;     // empty, or [B·S, n]: the n ids ahead of each row of a cache, the nearest first
  int64_t first_sequence = 0;      // index in the whole batch of the microbatch's first sequence

  /// True if the id `distance` places behind `at` is a label of the id there: it counts, and is of the same sample.
  bool is_label(size_t at, size_t distance) const {
    return tokens[at + distance] >= 0 && (masked.empty() || masked[at + distance] == 0) &&
           (begins.empty() || !sample_begins(begins, at, distance));
  }
};

/// Gives all that a listing takes of microbatch m (model/microbatch_inputs.h), for the rank at `place`.
/// InternalError where sizes don't fit.
void set_microbatch(device::Inputs& inputs, int m, const Microbatch& microbatch, const ir::Listing& listing,
                    const ir::Coordinates& place);
/// The input `drawn_key`, which dropout draws from beside the tokens' numbers: the run's seed in two halves, the
/// step.
std::array<int32_t, 3> drawn_key(uint64_t seed, int64_t step);
/// The inputs of a listing from one microbatch alone, for programs that only run forward.
device::Inputs inputs_of(const Microbatch& microbatch, const ir::Listing& listing, const ir::Coordinates& place);
/// Gives the factors of the loss terms, in the type that the listing takes; nothing where it takes none.
void set_scales(device::Inputs& inputs, std::span<const double> scales, const ir::Listing& listing);

}  // namespace heddle::runtime

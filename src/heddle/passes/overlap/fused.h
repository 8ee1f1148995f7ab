// Puts products in one op with the gather of their rows, or with the sum of what they make:
//
//   whole = all_gather x         y, whole = gather_product x, w {product linear}: while the other ranks' rows are
//   y = linear whole, w          on their way, those that are there are multiplied; `whole` only where it is read
//   part = linear a, down        y = product_scatter a, down {product linear}: rows are sent to their owner as soon
//   y = reduce_scatter part      as they are multiplied, who adds them up in rank order
//
// It runs after differentiation, so that forward and input gradients are taken alike. Any product by rows will do
// (OpDef::product_of_rows), in the phase and the chunk of the collective. The collective's rows must be of fixed
// number and in runs that lie rank after rank. A row of a product has the same bits whichever rows are computed
// with it, and a sum is its owner's, in rank order. So every value keeps its bits.
//
// Sources: FLUX (arXiv 2406.06858); AsyncTP of PyTorch; Wang et al., Overlap Communication with Dependent
// Computation via Decomposition (ASPLOS 2023).
#pragma once

#include <functional>
#include <vector>

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// A collective and a product that may become one op: indices into the ops of the listing as it is.
struct Pair {
  size_t collective = 0, product = 0;
  bool gathers = false;
  int64_t rows = 0, runs = 0;  // of a rank: those of one run, and how many runs
};

/// All pairs, in the order of their products; no op is in two of them.
std::vector<Pair> pairs_to_fuse(const ir::Listing& listing);

/// The number of pieces of each rank's rows of each run that come and go by themselves; 0: the pair stays as it is.
using PiecesOf = std::function<int(const ir::Listing& listing, const Pair& pair)>;

/// Makes one op of each pair that gets pieces, at the place of its product.
void fuse_with_collectives(ir::Listing& listing, const PiecesOf& pieces);

/// The op that a pair becomes, without its results: for durations.
ir::Op fused_op(const ir::Listing& listing, const Pair& pair, int pieces, bool keeps);

}  // namespace heddle::passes

// Cuts products into panels of rows together with the collectives of the rows that they read or make, so that one
// panel is on its way while another is multiplied:
//
//   whole = all_gather x           x.rows[0:64] goes first, and while the next rows are on their way
//   u = linear whole, up           u.rows[0:64/128] is made of what has come
//   a = swiglu u
//   part = linear a, down          the first rows of `part` are summed by their owners
//   y = reduce_scatter part        while the others are multiplied
//
// A panel is the same rows of every rank. Where the number of a rank's runs of rows (one a sequence) can be shared
// out, it is some of the runs, so that its rows lie together. Else it is some rows of each run. Whole values stay
// where and as they are, so that readers of all rows (attention, weight gradients) read them as before. A row has
// the bits that it has in the whole product. An op that stands between two such collectives and works by rows
// (activations, residual sums and norms) is cut too, so that panels go through without waiting for each other.
//
// Sources: AsyncTP of PyTorch; Domino (arXiv 2409.15241), which cuts batches; Wang et al., Overlap Communication
// with Dependent Computation via Decomposition (ASPLOS 2023).
#pragma once

#include <functional>
#include <vector>

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// True if a collective is worth being cut, beyond what has to hold for it.
using WorthCutting = std::function<bool(const ir::Listing& listing, const ir::Op& op)>;

/// Makes at most `panels` panels of every such product, as equal as its rows allow.
void tiles(ir::Listing& listing, int panels, const WorthCutting& worth);

/// The collectives that would be cut: indices into the ops of the listing as it is.
std::vector<size_t> collectives_to_cut(const ir::Listing& listing, const WorthCutting& worth);

/// Rows that one rank holds of a run of a collective.
int64_t run_of(const ir::Listing& listing, const ir::Op& op);

/// Rows that one rank holds of a panel, side by side: of several runs, or of one.
int64_t rows_of_panel(const ir::Listing& listing, const ir::Op& op, int panels);

}  // namespace heddle::passes

// Into how many panels the products of tensor parallelism are cut (passes/overlap/tiles), by what panels and
// messages last.
#pragma once

#include "heddle/ir/listing.h"
#include "heddle/passes/overlap/tiles.h"
#include "heddle/passes/weave.h"

namespace heddle::passes {

constexpr double kLatencies = 10;    // that a message lasts at least
constexpr int64_t kFewestRows = 64;  // side by side: with less, products read weights more than they compute
constexpr int kMostPanels = 16;
constexpr double kLeastGain = 0.02;  // of forward and backward, for which products are cut by cost

struct Panels {
  int stated = 0;         // so many, of every product that can be cut; 0: by durations
  bool woven = true;      // whether blocks are woven afterwards
  double latency_us = 0;  // of a message
};

/// Cuts into so many panels what stays long enough by the rule of tiles_by_rates, or all that can be if it is
/// stated.
void cut_into(ir::Listing& listing, int count, const Panels& panels, const Durations& durations);

/// The most panels that leave some message and its rows long enough; or the stated number.
int most_panels(const ir::Listing& listing, const Panels& panels, const Durations& durations);

/// Microseconds of forward and backward of all chunks, each by itself.
double forward_and_backward_us(const ir::Listing& listing, const Durations& durations, bool woven);

/// Cuts the products of a listing into as many panels as stated. Else it makes as many as leave the longest message
/// ten times its latency and a panel enough rows to be multiplied well. Collectives of which a panel would be too
/// short stay whole.
void tiles_by_rates(ir::Listing& listing, const Panels& panels, const Durations& durations);

}  // namespace heddle::passes

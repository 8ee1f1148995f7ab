// Into how many panels the products of tensor parallelism are cut (passes/overlap/tiles), by what panels and
// messages last.
#pragma once

#include "heddle/ir/listing.h"
#include "heddle/passes/overlap/tiles.h"
#include "heddle/passes/weave.h"

namespace heddle::passes {

struct Panels {
  int stated = 0;         // so many, of every product that can be cut; 0: by durations
  bool by_cost = false;   // none where forward and backward are not shorter by them
  bool woven = true;      // whether blocks are woven afterwards
  double latency_us = 0;  // of a message
};

/// Cuts the products of a listing into as many panels as stated; else as many as leave the longest message ten
/// times its latency and a panel enough rows to be multiplied well; by cost, of such numbers into that with which
/// forward and backward are shortest. Collectives of which a panel would be too short stay whole.
void tiles_by_rates(ir::Listing& listing, const Panels& panels, const Durations& durations);

}  // namespace heddle::passes

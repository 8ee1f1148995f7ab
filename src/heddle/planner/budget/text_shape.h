// The shape of a listing: what it does, whichever layers of a kind it holds. Two listings of one shape keep the
// same bytes and take the same times, under the same words for their layers. Ranks in the middle of a pipeline
// mostly do.
#pragma once

#include <string>

#include "heddle/ir/listing.h"

namespace heddle::planner {

/// Everything but names and whither messages go, with layers counted from the first one.
std::string shape_of(const ir::Listing& listing);
/// The lowest number of a layer, 0 where there is none.
int first_layer_of(const ir::Listing& listing);

}  // namespace heddle::planner

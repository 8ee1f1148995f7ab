// Writes onto each product over groups (an op whose definition knows the attribute `way`) how it is computed: by
// which of the backend's kernels. Groups whose sizes are known to be equal (OpDef::equal_groups) may be batched.
//
// The choice is made for the rows that each rank gets when all get as many, so it is the same on every rank and in
// every step. Where nothing is written, the product is grouped. A way is taken instead of another where it is
// predicted to be quicker by more than what such measurements differ by.
#pragma once

#include "heddle/cost/product_ways.h"
#include "heddle/ir/listing.h"
#include "heddle/ir/product_way.h"

namespace heddle::passes {

struct ProductChoice {
  ProductWay asked = ProductWay::cheapest;  // any other: wherever the groups allow it
  cost::ProductWays ways;
  int64_t even_rows = 0;  // that an exchange brings when all ranks get as many
};
void product_ways(ir::Listing& listing, const ProductChoice& choice);

}  // namespace heddle::passes

#include "heddle/passes/product_ways.h"

#include <algorithm>
#include <set>

#include "heddle/ir/equal_groups.h"

namespace heddle::passes {

namespace {

constexpr double kQuicker = 0.98;

}  // namespace

void product_ways(ir::Listing& listing, const ProductChoice& choice) {
  const ir::FixedRows rows(choice.even_rows);
  const std::set<ir::ValueId> equal_groups = ir::equal_groups(listing);
  for (ir::Op& op : listing.ops) {
    if (ir::place_of("way", op.def->attributes) < 0) continue;
    const ir::ValueId offsets = op.operand("offsets");
    const bool equal = equal_groups.contains(offsets);
    const auto groups = static_cast<double>(std::max<int64_t>(1, listing.value(offsets).shape[0].count - 1));
    const double flops = op.def->cost(listing, op, rows).flops / groups;
    // In the order in which one that is no quicker stays behind. Nothing but a measurement changes bits.
    std::vector<ProductWay> possible{ProductWay::grouped};
    if (equal) possible.insert(choice.ways.same_bits ? possible.begin() : possible.end(), ProductWay::batched);
    possible.push_back(ProductWay::serial);
    ProductWay best = possible[0];
    if (choice.asked == ProductWay::cheapest) {
      const auto time = [&](ProductWay way) { return choice.ways.rates.over_grouped(op.kind(), way, flops); };
      for (const ProductWay way : possible) {
        if (time(way) < kQuicker * time(best)) best = way;
      }
    } else {
      const bool can = std::find(possible.begin(), possible.end(), choice.asked) != possible.end();
      best = can ? choice.asked : ProductWay::grouped;
    }
    if (best != ProductWay::grouped) op.attributes.set("way", std::string(word_of(best)));
  }
}

}  // namespace heddle::passes

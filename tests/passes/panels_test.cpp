// How many panels rates lead to.
#include "heddle/passes/overlap/panels.h"

#include "heddle/passes/overlap/choice.h"
#include "tests/passes/expect_becomes.h"
#include "tests/passes/sharded_mlp.h"

namespace heddle::passes {
namespace {

// Gathers that are left of it, where whole messages and products last so long, and parts of them as much less.
int64_t panels(double message_us, double product_us, Panels options, bool by_cost = false) {
  options.latency_us = 1;
  ir::Listing listing = test::listing_of(test::kShardedMlp);
  const Durations durations = [=](const ir::Listing& of, const ir::Op& op) {
    const ir::FixedRows rows;
    const double whole = static_cast<double>(of.elements(of.base(op.out[0]), rows));
    const double share = static_cast<double>(of.elements(op.out[0], rows)) / whole;
    if (op.def->by_pieces) return 1e6;  // not chosen
    if (op.def->collective) return share * (message_us - options.latency_us) + options.latency_us;
    return op.kind() == "linear" ? share * product_us : 0;
  };
  if (by_cost) {
    overlap_by_cost(listing, options, durations);
  } else {
    tiles_by_rates(listing, options, durations);
  }
  ir::verify(listing);
  return std::count_if(listing.ops.begin(), listing.ops.end(),
                       [](const ir::Op& op) { return op.kind() == "all_gather"; });
}

TEST(Panels, LeaveAMessageTenTimesItsLatency) {
  EXPECT_EQ(panels(20, 100, {}), 1);
  EXPECT_EQ(panels(21, 100, {}), 2);
  EXPECT_EQ(panels(80, 100, {}), 4);
  EXPECT_EQ(panels(81, 100, {}), 8);
}

TEST(Panels, HaveEnoughRows) { EXPECT_EQ(panels(10'000, 10'000, {}), 512 / 64); }

TEST(Panels, AreAsManyAsStated) { EXPECT_EQ(panels(2, 100, {.stated = 5}), 5); }

TEST(Panels, ByCostWhereTheyPay) {
  EXPECT_EQ(panels(100, 10'000, {}, true), 1);  // 1 % of the time
  EXPECT_EQ(panels(100, 100, {}, true), 8);
  EXPECT_EQ(panels(30, 100, {}, true), 2);
  EXPECT_EQ(panels(2, 100, {.stated = 4}, true), 1);
}

}  // namespace
}  // namespace heddle::passes

// What an op that communicates while it computes is taken to last, and who may have one.
#include "heddle/plan/costs/durations.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/ir/parse.h"
#include "heddle/ops/ops.h"

namespace heddle::plan {
namespace {

double lasts_us(const char* line, double bytes_per_us) {
  const ir::Listing listing = ir::parse_listing(fmt::format("s\n  weight  x   f32[1024, 64]\n"
                                                            "  weight  a   f32[4096, 64]\n"
                                                            "  weight  up  f32[128, 64]\n"
                                                            "s, F\n  no layer\n    {}  compute over tp\n",
                                                            line),
                                                ops::find);
  DeviceRates rates;
  rates.flops_per_us = 1e5;
  rates.bytes_per_us = 1e12;
  rates.message_bytes_per_us = bytes_per_us;
  rates.message_latency_us = 3;
  return nominal_durations({}, rates)(listing, listing.ops[0]);
}

// Eight launches of 2 us and 2·4096·64·128 operations; of three other ranks 1024 rows each, of 64 or 128 columns.
TEST(Durations, OfAnOpThatCommunicatesWhileItComputes) {
  const double works_us = 8 * 2 + 671.08864;
  const char* const gather = "u = gather_product x, up {pieces 2, product linear, ranks 4, runs 1}";
  EXPECT_NEAR(lasts_us(gather, 1e6), works_us, 1e-6);
  EXPECT_NEAR(lasts_us(gather, 1e3), 786.432 + 3 + works_us / 8, 1e-6);
  const char* const scatter = "y = product_scatter a, up {pieces 2, product linear, ranks 4, runs 1}";
  EXPECT_NEAR(lasts_us(scatter, 1e6), works_us, 1e-6);
  EXPECT_NEAR(lasts_us(scatter, 1e3), 2 * 786.432 + 3 + works_us / 8, 1e-6);
}

}  // namespace
}  // namespace heddle::plan

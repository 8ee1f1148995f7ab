// Networks of more than two tiers, and domains without a switch.
#include <gtest/gtest.h>

#include "heddle/cost/collective.h"

namespace heddle::cost {
namespace {

constexpr NetworkEfficiency kNet{1, 1, 1};
constexpr double kBytes = 1e9;

Accelerator cluster() {
  Accelerator a;
  a.inner = {8, 400e9, 0};
  a.outer = {0, 50e9, 0};
  return a;
}

TEST(Tiers, ASpineAsFastAsItsRailsChangesNothing) {
  Accelerator flat = cluster(), deep = flat;
  deep.outer.ranks = 64;
  deep.farther = {{0, 50e9, 0}};
  for (const Group g : {Group{8, 1}, {32, 1}, {256, 1}, {16, 8}, {64, 64}}) {
    EXPECT_DOUBLE_EQ(all_to_all_s(deep, kNet, g, kBytes), all_to_all_s(flat, kNet, g, kBytes));
    EXPECT_LE(gather_s(deep, kNet, g, kBytes), gather_s(flat, kNet, g, kBytes) * (1 + 1e-12));
    const ExchangeLoad x{4096, 14336, 8, 4, true};
    EXPECT_DOUBLE_EQ(exchange_s(deep, kNet, g, x), exchange_s(flat, kNet, g, x));
  }
  EXPECT_DOUBLE_EQ(send_s(deep, kNet, 128, kBytes), send_s(flat, kNet, 128, kBytes));
}

TEST(Tiers, AnOversubscribedSpineSlowsOnlyWhatCrossesIt) {
  Accelerator flat = cluster(), thin = flat;
  thin.outer.ranks = 64;
  thin.farther = {{0, 50e9 / 8, 0}};
  EXPECT_DOUBLE_EQ(all_to_all_s(thin, kNet, {64, 1}, kBytes), all_to_all_s(flat, kNet, {64, 1}, kBytes));
  // Half of the bytes of 128 ranks cross, at an eighth of the rate.
  EXPECT_DOUBLE_EQ(all_to_all_s(thin, kNet, {128, 1}, kBytes), kBytes / 2 / (50e9 / 8));
  EXPECT_DOUBLE_EQ(send_s(thin, kNet, 64, kBytes), kBytes / (50e9 / 8));
  EXPECT_DOUBLE_EQ(send_s(thin, kNet, 32, kBytes), kBytes / 50e9);
  // 128 neighbours in two domains of 64: each rank brings 1/64 of the other half.
  EXPECT_DOUBLE_EQ(gather_s(thin, kNet, {2, 64}, kBytes), kBytes / 2 / (50e9 / 8));
}

TEST(Tiers, FullyConnectedGroupsHaveTheLinksAmongThemselves) {
  Accelerator a = cluster();
  a.inner.wiring = Wiring::full;
  const double link = 400e9 / 7;
  EXPECT_DOUBLE_EQ(send_s(a, kNet, 1, kBytes), kBytes / link);
  EXPECT_DOUBLE_EQ(gather_s(a, kNet, {2, 1}, kBytes), kBytes / 2 / link);
  EXPECT_DOUBLE_EQ(all_to_all_s(a, kNet, {4, 1}, kBytes), kBytes * 3 / 4 / (3 * link));
  EXPECT_DOUBLE_EQ(all_to_all_s(a, kNet, {8, 1}, kBytes), all_to_all_s(cluster(), kNet, {8, 1}, kBytes));
}

TEST(Tiers, MeshesAreBoundByTheirMiddle) {
  Accelerator a = cluster();
  a.inner = {64, 400e9, 0, Wiring::mesh, 8};
  const double link = 100e9;
  EXPECT_DOUBLE_EQ(send_s(a, kNet, 1, kBytes), kBytes / link);
  // A line of the mesh passes a ring around over one link each way; the whole mesh has two rings.
  EXPECT_DOUBLE_EQ(gather_s(a, kNet, {8, 1}, kBytes), kBytes * 7 / 8 / link);
  EXPECT_DOUBLE_EQ(gather_s(a, kNet, {64, 1}, kBytes), kBytes * 63 / 64 / (2 * link));
  // 32 ranks send half of their bytes over eight links.
  EXPECT_NEAR(all_to_all_s(a, kNet, {64, 1}, kBytes), 32 * kBytes / 2 / (8 * link), 0.02 * 32 * kBytes / 16 / link);
  Accelerator longer = a;
  longer.inner.rows = 4;  // 4 × 16: the cut has half as many links
  EXPECT_GT(all_to_all_s(longer, kNet, {64, 1}, kBytes), 1.9 * all_to_all_s(a, kNet, {64, 1}, kBytes));
}

}  // namespace
}  // namespace heddle::cost

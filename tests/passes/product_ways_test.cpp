// Which way each product over groups goes, by what is known of the groups and by rates.
#include "heddle/passes/product_ways.h"

#include "tests/passes/expect_becomes.h"

namespace heddle::test {
namespace {

// Three groups of four rows, of 2 × 4 × 8 × 16 = 1024 FLOPs each; `way` follows the operands of each product.
std::string equal_groups(const std::string& way) {
  return R"(
listing 0
  weight      w        f32[3, 16, 8]
  accumulator grad.w   f32[3, 16, 8]
listing 0, F
    x = receive {columns 8, dtype f32, rows 12, step -1}  comm.pp.forward.receive
    bounds = even_offsets {groups 3, rows 4}
    y = grouped_linear x, w, bounds)" +
         way + R"(
    send y {step 1}                                      comm.pp.forward.send
listing 0, I
    dy = receive {columns 16, dtype f32, rows 12, step 1}  comm.pp.backward.receive
    dx = grouped_linear_dgrad dy, w, bounds)" +
         way + R"(
    send dx {step -1}                                    comm.pp.backward.send
listing 0, W
    grouped_linear_wgrad x, dy, bounds -> grad.w)" +
         way + "\n";
}

// Groups as a router has them.
std::string any_groups(const std::string& way) {
  return R"(
listing 0
  weight      w        f32[3, 16, 8]
  weight      bias     f32[3]
listing 0, F
    x = receive {columns 8, dtype f32, rows 12, step -1}  comm.pp.forward.receive
    logits = receive {columns 3, dtype f32, rows 12, step -1}  comm.pp.forward.receive
    scores, gates, experts, row_of, token_of, offsets = router logits, bias {function sigmoid, group_score_top 2, groups 1, normalize 1, scale 1, top_groups 1, top_k 1}
    y = grouped_linear x, w, offsets)" +
         way + R"(
    send y {step 1}                                      comm.pp.forward.send
)";
}

Rewrite by(ProductWay asked, const std::string& rates = "", bool same_bits = true) {
  return [=](ir::Listing& listing) {
    passes::product_ways(listing, {asked, {cost::WayRates::parse(rates), same_bits}, 0});
  };
}

const std::string kBatched = " {way batched}", kSerial = " {way serial}";

TEST(ProductWaysPass, EqualGroupsAreBatchedUnlessThatIsSlower) {
  expect_becomes(equal_groups(""), by(ProductWay::cheapest), equal_groups(kBatched));
  std::string slower;
  for (const char* kind : {"grouped_linear", "grouped_linear_dgrad", "grouped_linear_wgrad"}) {
    slower += fmt::format("{}{}.batched 0.001 1.1", slower.empty() ? "" : ",", kind);
  }
  expect_stays(equal_groups(""), by(ProductWay::cheapest, slower));
  expect_becomes(equal_groups(""), by(ProductWay::batched, slower), equal_groups(kBatched));
}

TEST(ProductWaysPass, OnlyAMeasurementChangesBits) {
  expect_stays(equal_groups(""), by(ProductWay::cheapest, "", false));
  expect_becomes(equal_groups(""), by(ProductWay::batched, "", false), equal_groups(kBatched));
  std::string quicker;
  for (const char* kind : {"grouped_linear", "grouped_linear_dgrad", "grouped_linear_wgrad"})
    quicker += fmt::format("{}{}.batched 0.001 0.9", quicker.empty() ? "" : ",", kind);
  expect_becomes(equal_groups(""), by(ProductWay::cheapest, quicker, false), equal_groups(kBatched));
}

TEST(ProductWaysPass, GroupsOfAnySizeAreNever) {
  for (const ProductWay asked : {ProductWay::cheapest, ProductWay::batched, ProductWay::grouped}) {
    expect_stays(any_groups(""), by(asked, "grouped_linear.batched 1 0.1"));
  }
  expect_becomes(any_groups(""), by(ProductWay::serial), any_groups(kSerial));
}

TEST(ProductWaysPass, TheWorkOfAGroupDecides) {
  // Quicker one after the other from 1000 FLOPs a group on, slower below.
  const std::string large = "grouped_linear.serial 0.0005 2,grouped_linear.serial 0.001 0.9";
  const std::string larger = "grouped_linear.serial 0.05 2,grouped_linear.serial 0.1 0.9";
  expect_becomes(any_groups(""), by(ProductWay::cheapest, large), any_groups(kSerial));
  expect_stays(any_groups(""), by(ProductWay::cheapest, larger));
  // Less than what measurements differ by is nothing.
  expect_stays(any_groups(""), by(ProductWay::cheapest, "grouped_linear.serial 1 0.99"));
}

TEST(ProductWaysPass, AWayThatIsNoneIsRefused) {
  EXPECT_THROW(listing_of(equal_groups(" {way grouped}")), ConfigError);
}

}  // namespace
}  // namespace heddle::test

// Times of the ways of a product over that of grouped: between points, as text, refused.
#include "heddle/cost/product_ways.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"

namespace heddle::cost {
namespace {

TEST(WayRates, LieBetweenTheirPointsInLogarithms) {
  WayRates rates;
  rates.set("p", ProductWay::serial, {{100, 1}, {1, 4}});
  EXPECT_DOUBLE_EQ(rates.over_grouped("p", ProductWay::serial, 1e6), 4);
  EXPECT_DOUBLE_EQ(rates.over_grouped("p", ProductWay::serial, 1e7), 2);
  EXPECT_DOUBLE_EQ(rates.over_grouped("p", ProductWay::serial, 1e8), 1);
  EXPECT_DOUBLE_EQ(rates.over_grouped("p", ProductWay::serial, 1), 4);
  EXPECT_DOUBLE_EQ(rates.over_grouped("p", ProductWay::serial, 1e12), 1);
  for (const ProductWay way : {ProductWay::grouped, ProductWay::batched})
    EXPECT_DOUBLE_EQ(rates.over_grouped("p", way, 1e7), 1);
  EXPECT_DOUBLE_EQ(rates.over_grouped("q", ProductWay::serial, 1e7), 1);
}

TEST(WayRates, AreTheirText) {
  const std::string text = "a.batched 1 0.9,a.batched 10 1,b.serial 0.5 3.5";
  EXPECT_EQ(WayRates::parse(text).text(), text);
  EXPECT_EQ(WayRates::parse("").text(), "");
  EXPECT_TRUE(WayRates::parse("").empty());
  for (const char* wrong : {"a", "a.batched", "a.batched 1", "a.grouped 1 1", "a.batched x 1", "a.batched 1 0",
                            "a.batched 0 1", "a.batched 1 1 1", "a.batched 1 nan", "a.batched 1 1,,"}) {
    EXPECT_THROW(WayRates::parse(wrong), ConfigError) << wrong;
  }
}

}  // namespace
}  // namespace heddle::cost

// Counts and numbers as people type them.
#include "heddle/base/count_text.h"

#include <gtest/gtest.h>

#include <limits>

#include "heddle/base/text.h"

namespace heddle {
namespace {

TEST(CountText, UnitsExponentsAndGroups) {
  EXPECT_EQ(count_of("0"), 0);
  EXPECT_EQ(count_of("-5"), -5);
  EXPECT_EQ(count_of("+5"), 5);
  EXPECT_EQ(count_of("500M"), 500'000'000);
  EXPECT_EQ(count_of("1.5e9"), 1'500'000'000);
  EXPECT_EQ(count_of("2.5k"), 2500);
  EXPECT_EQ(count_of("7B"), 7'000'000'000);
  EXPECT_EQ(count_of("1 T"), 1'000'000'000'000);
  EXPECT_EQ(count_of("4Ki"), 4096);
  EXPECT_EQ(count_of("1,234,567"), 1234567);
  EXPECT_EQ(count_of("1_000"), 1000);
  EXPECT_EQ(count_of("9223372036854775807"), std::numeric_limits<int64_t>::max())
      << "more digits than a double has";
}

TEST(CountText, WhatIsNoCount) {
  for (const char* text : {"",     "+",      "-",    "K",        "1.5",  "0.5K1", "1e99", "9223372036854775808",
                           "1,00", "1,0000", ",100", "1000,000", "1_",   "_1",    "1__0", "5Q",
                           "0x10", "nan",    "inf",  "1e3 x",    "1 000"}) {
    EXPECT_FALSE(count_of(text)) << text << " is " << count_of(text).value_or(0);
  }
}

TEST(CountText, Numbers) {
  EXPECT_EQ(number_of("1e-3"), 1e-3);
  EXPECT_EQ(number_of("1.5M"), 1.5e6);
  EXPECT_EQ(number_of("-0.25"), -0.25);
  for (const char* text : {"", "nan", "inf", "-inf", "1e999", "x", "1..2"}) EXPECT_FALSE(number_of(text)) << text;
}

TEST(Text, NamesThatDifferInMarksAndCaseAlone) {
  EXPECT_TRUE(same_name("DeepSeek-V3", "deepseek_v3"));
  EXPECT_TRUE(same_name("A100-80", "a100 80"));
  EXPECT_FALSE(same_name("H100", "H1000"));
  EXPECT_FALSE(same_name("", "x"));
}

}  // namespace
}  // namespace heddle

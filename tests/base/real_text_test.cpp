// Numbers with a fraction: what the C library reads equals what the C++ library reads, bit for bit.
#include "heddle/base/real_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>

namespace heddle {
namespace {

struct Read {
  ptrdiff_t length = 0;
  std::errc error{};
  uint64_t bits = 0;
  bool operator==(const Read&) const = default;
};

Read read_with(std::from_chars_result (&read)(const char*, const char*, double&), const std::string& text) {
  double value = 7;
  const auto [end, error] = read(text.data(), text.data() + text.size(), value);
  return {end - text.data(), error, std::isnan(value) ? 1 : std::bit_cast<uint64_t>(value)};
}

void expect_same(const std::string& text) {
  const Read a = read_with(read_real, text), b = read_with(read_real_by_c, text);
  EXPECT_EQ(a, b) << '\'' << text << "': " << a.length << ' ' << static_cast<int>(a.error) << " and " << b.length
                  << ' ' << static_cast<int>(b.error);
}

TEST(RealText, ReadsNumbers) {
  for (const auto read : {read_real, read_real_by_c}) {
    const std::string text = "-12.5e-1x";
    double value = 0;
    EXPECT_EQ(read(text.data(), text.data() + text.size(), value).ptr, text.data() + 8);
    EXPECT_EQ(value, -1.25);
    EXPECT_EQ(read(text.data(), text.data() + 3, value).ptr, text.data() + 3) << "what follows is not looked at";
    EXPECT_EQ(value, -12);
    EXPECT_EQ(read(text.data() + 8, text.data() + 9, value).ec, std::errc::invalid_argument);
    EXPECT_EQ(value, -12);
  }
}

TEST(RealText, EdgesAreReadAlike) {
  for (const char* text : {"",       "-",      ".",      "-.",    "1.",    ".5",      "-.5e3",     "1e",
                           "1e+",    "1e-x",   "+1",     " 1",    "0x10",  "1e400",   "-1e400",    "1e-400",
                           "5e-324", "2e-324", "1e-310", "inf",   "-INF",  "infinit", "Infinity1", "nan",
                           "-nan",   "na",     "1,5",    "1_000", "1e5e5", "00012",   "-0",        "0e999999999"}) {
    expect_same(text);
  }
}

TEST(RealText, DrawnTextsAreReadAlike) {
  std::mt19937_64 random(1);
  const std::string letters = "0123456789..eE+-infa ";
  for (int i = 0; i < 10'000; ++i) {
    std::string text;
    for (uint64_t left = random() % 12; left > 0; --left) text += letters[random() % letters.size()];
    expect_same(text);
    const auto x = std::bit_cast<double>(random());
    if (std::isfinite(x)) {
      expect_same(fmt::format("{}", x));
      expect_same(fmt::format("{:.{}e}", x, random() % 30));
      EXPECT_EQ(read_with(read_real_by_c, fmt::format("{}", x)).bits, std::bit_cast<uint64_t>(x));
    }
  }
}

}  // namespace
}  // namespace heddle

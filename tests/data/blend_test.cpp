// Blends: exact shares at every place, one place for each, and weights as people write them.
#include "heddle/data/blend.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "heddle/base/error.h"

namespace heddle::data {
namespace {

TEST(Blend, KeepsEachShareAtEveryPlace) {
  rc::check([](const std::vector<uint32_t>& drawn) {
    std::vector<int64_t> weights;
    int64_t sum = 0;
    for (size_t i = 0; i < std::min<size_t>(drawn.size(), 12); ++i) {
      weights.push_back(1 + drawn[i] % (i % 3 == 0 ? 100'000 : 10));
      sum += weights.back();
    }
    RC_PRE(!weights.empty());
    const Blend blend(weights);
    std::vector<int64_t> counts(weights.size());
    for (int64_t place = 0; place < 2000; ++place) {
      const Blend::Place at = blend.at(place);
      RC_ASSERT(at.index == counts[at.part]);  // each of a part's sequences in turn
      ++counts[at.part];
      for (size_t part = 0; part < weights.size(); ++part) {
        RC_ASSERT(blend.count(part, place + 1) == counts[part]);
        const double wanted =
            static_cast<double>(weights[part]) * static_cast<double>(place + 1) / static_cast<double>(sum);
        RC_ASSERT(std::abs(static_cast<double>(counts[part]) - wanted) < 2);
      }
    }
  });
}

TEST(Blend, IsExactFarOut) {
  const Blend blend({1, int64_t{1} << 51, 3});
  const int64_t far = int64_t{1} << 60;
  int64_t sum = 0;
  for (size_t part = 0; part < 3; ++part) sum += blend.count(part, far);
  EXPECT_EQ(sum, far);
  EXPECT_NEAR(static_cast<double>(blend.count(0, far)), 512, 2);
  const Blend::Place at = blend.at(far - 1);
  EXPECT_EQ(at.index, blend.count(at.part, far) - 1);
}

TEST(Blend, ReadsWeightsAsTheyAreWritten) {
  const auto written = [](const char* text) {
    std::string all;
    for (const BlendPart& part : parse_blend(text)) all += fmt::format("{}={} ", part.path, part.weight);
    return all;
  };
  EXPECT_EQ(written("data/a b"), "data/a b=1 ");
  EXPECT_EQ(written("0.7 data/a 0.3 data/b"), "data/a=7 data/b=3 ");
  EXPECT_EQ(written("1 a .25  b 2.125 c"), "a=1000 b=250 c=2125 ");
  EXPECT_EQ(written("30"), "30=1 ");
  EXPECT_EQ(written("1 only"), "only=1 ");
  for (const char* bad : {"0.5 a 0.5", "0.5 a b 0.5", "0 a 1 b", "1 a -1 b", "0.00000000000001 a 1 b", "1 a 1e3 b"})
    EXPECT_THROW(parse_blend(bad), ConfigError) << bad;
}

}  // namespace
}  // namespace heddle::data

// Chances of a token's choice against all choices there are, and draws of experts' shares.
#include "heddle/cost/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace heddle::cost {
namespace {

// Every choice of `chosen` experts from `chosen_groups` whole groups is as likely as any other.
double share_of(const Choice& c, uint32_t looked_at, int wanted_hits) {
  const auto in_group = static_cast<int>(c.experts / c.groups);
  double hits = 0, all = 0;
  for (uint32_t groups = 0; groups < 1u << c.groups; ++groups) {
    if (std::popcount(groups) != c.chosen_groups) continue;
    uint32_t open = 0;
    for (int e = 0; e < c.experts; ++e) open |= (groups >> (e / in_group) & 1u) << e;
    for (uint32_t chosen = 0; chosen < 1u << c.experts; ++chosen) {
      if (std::popcount(chosen) != c.chosen || (chosen & ~open) != 0) continue;
      ++all;
      hits += std::popcount(chosen & looked_at) == wanted_hits;
    }
  }
  return hits / all;
}

TEST(Choice, ChancesAreThoseOfAllChoices) {
  const Choice free{12, 4, 1, 1}, limited{12, 3, 4, 2};
  for (int m = 0; m <= 12; ++m) {
    EXPECT_NEAR(free.none(m), share_of(free, (1u << m) - 1, 0), 1e-12) << m;
    EXPECT_NEAR(free.one(m), share_of(free, (1u << m) - 1, 1), 1e-12) << m;
  }
  for (const int groups : {1, 2, 3, 4}) {  // as many experts of each: one, or all three
    for (const int each : {1, 3}) {
      uint32_t looked_at = 0;
      for (int g = 0; g < groups; ++g) looked_at |= ((1u << each) - 1) << (3 * g);
      EXPECT_NEAR(limited.none(groups * each, groups), share_of(limited, looked_at, 0), 1e-12) << groups << each;
      EXPECT_NEAR(limited.one(groups * each, groups), share_of(limited, looked_at, 1), 1e-12) << groups << each;
    }
  }
}

TEST(Routing, SharesHaveTheSpread) {
  const Routing routing{0.2};
  double sum = 0, squares = 0;
  std::vector<double> fullest;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const std::vector<double> shares = routing.shares(256, RandomKey(seed));
    double whole = 0, most = 0;
    for (size_t rank = 0; rank < 64; ++rank) {
      double of_rank = 0;
      for (size_t e = 4 * rank; e < 4 * rank + 4; ++e) {
        of_rank += shares[e];
        squares += (shares[e] - 1) * (shares[e] - 1);
      }
      most = std::max(most, of_rank / 4);
      whole += of_rank;
    }
    EXPECT_NEAR(whole, 256, 1e-9);
    sum += whole;
    fullest.push_back(most);
  }
  EXPECT_NEAR(std::sqrt(squares / sum), 0.2, 0.004);
  std::sort(fullest.begin(), fullest.end());
  EXPECT_NEAR(fullest[200], routing.fullest(0.5, 256, 64), 0.01);  // the search's model is this one
  EXPECT_NEAR(fullest[395], routing.fullest(0.99, 256, 64), 0.04);
  EXPECT_EQ(Routing{0}.shares(3, RandomKey(1)), (std::vector<double>{1, 1, 1}));
}

}  // namespace
}  // namespace heddle::cost

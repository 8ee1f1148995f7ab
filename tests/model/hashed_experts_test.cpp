// The experts of token ids where no released table says them: different ones of each row, each as often as any
// other, and the same in every build.
#include "heddle/model/hashed_experts.h"

#include <gtest/gtest.h>

#include <cmath>

namespace heddle::model {
namespace {

TEST(HashedExperts, AreDifferentAndEven) {
  constexpr int64_t kIds = 20'000, kExperts = 24;
  for (const int64_t chosen : {int64_t{1}, int64_t{6}, kExperts}) {
    const RandomKey key = RandomKey(3).with("model.layers.0.mlp.gate.tid2eid");
    std::vector<int64_t> times(kExperts, 0);
    for (int64_t id = 0; id < kIds; ++id) {
      const std::vector<int64_t> row = hashed_experts(key, id, chosen, kExperts);
      ASSERT_EQ(std::ssize(row), chosen);
      for (size_t j = 0; j < row.size(); ++j) {
        ASSERT_TRUE(row[j] >= 0 && row[j] < kExperts);
        if (j > 0) ASSERT_LT(row[j - 1], row[j]);
        ++times[static_cast<size_t>(row[j])];
      }
    }
    const double mean = static_cast<double>(kIds * chosen) / kExperts;
    for (const int64_t count : times) EXPECT_NEAR(static_cast<double>(count), mean, 5 * std::sqrt(mean)) << chosen;
  }
}

// A run that begins anew on other ranks, or by another build, must have the same table.
TEST(HashedExperts, FollowFromKeyAndIdAlone) {
  const RandomKey key = RandomKey(1).with("model.layers.0.mlp.gate.tid2eid");
  EXPECT_EQ(hashed_experts(key, 7, 3, 256), hashed_experts(key, 7, 3, 256));
  int equal = 0;
  for (int64_t id = 0; id < 100; ++id) {
    equal += hashed_experts(key, id, 3, 256) == hashed_experts(key, id + 1, 3, 256);
    equal += hashed_experts(key, id, 3, 256) == hashed_experts(key.with("other"), id, 3, 256);
  }
  EXPECT_EQ(equal, 0);
}

}  // namespace
}  // namespace heddle::model

// What the fullest rank has, of rows as they were routed and as they were computed.
#include "heddle/session/ranks/rank_rows.h"

#include <gtest/gtest.h>

namespace heddle::session {
namespace {

TEST(RankRows, AreSummedByTheExpertsThatRanksHold) {
  plan::Degrees degrees;
  degrees.dp = 4;
  degrees.ep = 2;
  const plan::Mesh mesh(degrees);
  train::StepResult result;
  result.statistics.push_back({&model::kLoad, 0, {6, 0, 1, 1}});  // 6 and 2
  result.statistics.push_back({&model::kLoad, 1, {4, 2, 1, 1}});  // 6 and 2: in all 12 and 4
  result.work.resize(4);
  for (int r = 0; r < 4; ++r)
    result.work[static_cast<size_t>(r)].expert_rows = mesh.at(r).at(ir::Axis::ep) == 0 ? 5 : 3;  // 10 and 6
  const auto fullest = fullest_rank(result, mesh);
  ASSERT_TRUE(fullest.has_value());
  EXPECT_DOUBLE_EQ(fullest->routed, 1.5);
  EXPECT_DOUBLE_EQ(fullest->computed, 1.25);
  for (train::RankWork& work : result.work) work.expert_rows = 0;  // a device that does not tell
  EXPECT_FALSE(fullest_rank(result, mesh).has_value());
  EXPECT_FALSE(fullest_rank(result, plan::Mesh(plan::Degrees())).has_value());
}

}  // namespace
}  // namespace heddle::session

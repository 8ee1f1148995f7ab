// What the fullest rank has, of rows as they were routed and as they were computed.
#include "heddle/session/ranks/rank_rows.h"

#include <gtest/gtest.h>

#include "heddle/ops/ops.h"
#include "heddle/session/ranks/layer_replicas.h"

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
  const auto fullest = fullest_rank(result, {}, mesh);
  ASSERT_TRUE(fullest.has_value());
  EXPECT_DOUBLE_EQ(fullest->routed, 1.5);
  EXPECT_DOUBLE_EQ(fullest->computed, 1.25);
  const train::ExpertPlacements moved{2, {{0, {2, 1, 0, 3}}}};  // 1 and 7 of the first layer
  EXPECT_DOUBLE_EQ(fullest_rank(result, moved, mesh)->routed, 1.125);
  for (train::RankWork& work : result.work) work.expert_rows = 0;  // a device that does not tell
  EXPECT_FALSE(fullest_rank(result, {}, mesh).has_value());
  EXPECT_FALSE(fullest_rank(result, {}, plan::Mesh(plan::Degrees())).has_value());
}

// Rows by the experts that ranks hold, rows by what was counted, bytes by the ops of the layer's text: two of
// weights, once ahead and once again, and one of gradients.
TEST(LayerCopies, AreOfTheLayersThatCount) {
  plan::Degrees degrees;
  degrees.dp = degrees.ep = 2;
  const plan::Mesh mesh(degrees);
  plan::Lowered lowered;
  ir::Listing& listing = lowered.program.listings.emplace_back();
  const auto value = [&](Dtype dtype, std::vector<int64_t> shape) {
    ir::Value v;
    v.name = fmt::format("v{}", listing.values.size());
    v.dtype = dtype;
    for (const int64_t n : shape) v.shape.push_back({n, ir::none});
    return listing.add_value(std::move(v));
  };
  const ir::ValueId w = value(Dtype::bf16, {2, 4, 8}), placement = value(Dtype::i32, {10}),
                    copies = value(Dtype::bf16, {3, 4, 8}), partial = value(Dtype::f32, {3, 4, 8}),
                    sum = value(Dtype::f32, {2, 4, 8}), experts = value(Dtype::i32, {6, 2});
  const auto add = [&](std::string_view kind, std::vector<ir::ValueId> in, std::vector<ir::ValueId> out,
                       std::vector<ir::ValueId> updates) {
    ir::Op& op = listing.ops.emplace_back();
    op.def = &ops::find(kind);
    op.layer = 1;
    op.in = std::move(in);
    op.out = std::move(out);
    op.updates = std::move(updates);
  };
  add("place_rows", {experts, placement, placement}, {experts}, {sum});
  add("fetch_copies", {w, placement}, {copies}, {});
  add("fetch_copies", {w, placement}, {copies}, {});
  add("return_copies", {partial, placement}, {}, {sum});
  train::StepResult result;
  result.statistics.push_back({&model::kLoad, 0, {1, 1, 1, 1}});  // a layer without a choice
  result.statistics.push_back({&model::kLoad, 1, {6, 2, 1, 1}});
  EXPECT_TRUE(layer_replicas(result, {}, lowered, mesh).empty());
  result.statistics.push_back({&model::kPlaced, 1, {5, 5, 3, -2, 4, 1, 0, 2, 0}});
  const auto layers = layer_replicas(result, {}, lowered, mesh);
  observe::Figures expected;
  expected.set_list(observe::figures::kRoutedRows, {8, 2});
  expected.set_list(observe::figures::kComputedRows, {5, 5});
  expected.set(observe::figures::kReplicaRows, 3);
  expected.set(observe::figures::kReplicaCrossingsSaved, -2);
  expected.set(observe::figures::kReplicaWeightBytes, 4 * (2 * 4 * 8 * 2));
  expected.set(observe::figures::kReplicaGradientBytes, 4 * (4 * 8 * 4));
  expected.set(observe::figures::kReplicasByCounts, 1);
  expected.set(observe::figures::kReplicasByHistory, 0);
  expected.set(observe::figures::kReplicasEven, 2);
  expected.set(observe::figures::kReplicasNotWorth, 0);
  EXPECT_EQ(layers, (std::vector<observe::Figures>{{}, expected}));
}

}  // namespace
}  // namespace heddle::session

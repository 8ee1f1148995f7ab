// Who shares a weight: the groups of a mesh cut into runs, and the parameters that are cut among them.
#include "heddle/plan/sharding.h"

#include <gtest/gtest.h>

#include "heddle/passes/host/residency_words.h"
#include "heddle/plan/plan.h"
#include "tests/support/tiny_models.h"

namespace heddle::plan {
namespace {

using Ranks = std::vector<int>;

TEST(ShardGroups, AreRunsOfNeighbours) {
  const Mesh mesh({.dp = 8});
  EXPECT_EQ(mesh.group("dense_in4", 5), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(mesh.group("dense_across4", 5), (Ranks{1, 5}));
  EXPECT_EQ(mesh.group("dense_by4", 5), (Ranks{0, 4, 1, 5, 2, 6, 3, 7}));
}

TEST(ShardGroups, AreNeighboursInEveryOrderOfTheAxes) {
  const Mesh mesh({.cp = 2, .dp = 2, .order = "tp-dp-cp-pp"});
  EXPECT_EQ(mesh.group("dense_in2", 0), (Ranks{0, 1}));
  EXPECT_EQ(mesh.group("dense_across2", 0), (Ranks{0, 2}));
}

// Two ranks of tp stand beside each other: a copy on four ranks has two of each.
TEST(ShardGroups, KeepOtherAxesApart) {
  const Mesh mesh({.tp = 2, .dp = 4});
  EXPECT_EQ(mesh.group("dense_in2", 5), (Ranks{5, 7}));
  EXPECT_EQ(mesh.group("dense_across2", 5), (Ranks{1, 5}));
}

TEST(ShardGroups, CutTheCopiesOfEachWeightByWhatIsLeft) {
  const Degrees mesh{.tp = 2, .dp = 8, .ep = 4};
  EXPECT_EQ(ranks_within(mesh, 0, 8), 8);
  EXPECT_EQ(ranks_within(mesh, 8, 16), 8);  // that nothing cuts
  EXPECT_EQ(ranks_within(mesh, 8, 8), 4);   // that tp cuts
  EXPECT_EQ(ranks_within(mesh, 8, 4), 2);   // of experts
  EXPECT_EQ(ranks_within(mesh, 2, 4), 1);   // whole: ep cuts it more often
}

model::Parameter* parameter(model::RankText& text, std::string_view name) {
  const auto at = std::find_if(text.parameters.begin(), text.parameters.end(),
                               [&](const model::Parameter& p) { return p.name == name; });
  return at == text.parameters.end() ? nullptr : &*at;
}

TEST(ShardMarks, MatricesAreCutAndVectorsAreNot) {
  model::RankText text;
  const auto add = [&](const char* name, ir::Shape shape, model::Parameter::Part part) {
    ir::Value value;
    value.name = name;
    value.shape = std::move(shape);
    value.role = ir::Role::weight;
    model::Parameter p;
    p.name = name;
    p.part = part;
    p.layer = 1;
    p.replica_group = "dense";
    p.value = text.listing.add_value(std::move(value));
    text.parameters.push_back(p);
  };
  add("up", {{16}, {8}}, model::Parameter::Part::mlp);
  add("odd", {{3}, {5}}, model::Parameter::Part::mlp);
  add("norm", {{8}}, model::Parameter::Part::norm);
  add("q", {{8}, {8}}, model::Parameter::Part::attention);
  Parallel parallel;
  parallel.shard = passes::Shard::weights;
  parallel.shard_ranks = 2;
  parallel.sharded = passes::part_groups("mlp:1-3");
  const passes::ShardedWeights weights = mark_sharded(text, parallel, Mesh({.dp = 4}), 0);
  EXPECT_EQ(weights, (passes::ShardedWeights{{"up", 2}}));
  EXPECT_EQ(parameter(text, "up")->within, "dense_in2");
  EXPECT_EQ(parameter(text, "up")->across, "dense_across2");
  EXPECT_EQ(parameter(text, "up")->replica_group, "dense_by2");
  EXPECT_EQ(parameter(text, "odd")->within, "") << "15 elements on four ranks have no equal runs";
  EXPECT_EQ(parameter(text, "norm")->within, "");
  EXPECT_EQ(parameter(text, "q")->within, "");
}

}  // namespace
}  // namespace heddle::plan

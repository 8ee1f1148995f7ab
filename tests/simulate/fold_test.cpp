// Ranks that do the same are simulated once, and nothing changes by it.
#include "heddle/simulate/fold.h"

#include <gtest/gtest.h>

#include "heddle/base/random.h"
#include "heddle/plan/mesh.h"
#include "tests/simulate/hand_made.h"
#include "tests/simulate/tiny_step.h"

namespace heddle::test {
namespace {

using simulate::Fold;
using simulate::Groups;

TEST(Fold, RanksOfOnePlaceAreOneKind) {
  const Groups groups{{"comm.dp", {{0, 2}, {1, 3}}}, {"comm.pp.forward", {{0, 1}, {2, 3}}}};
  const Fold fold = simulate::fold({0, 0, 0, 0}, groups, {});
  EXPECT_EQ(fold.kind_of, (std::vector{0, 1, 0, 1}));  // apart by their place in the line
  EXPECT_EQ(fold.first, (std::vector{0, 1}));
  EXPECT_EQ(fold.count, (std::vector{2, 2}));
}

// Rank 5 differs: so do those who meet it, and those who meet them; the other group of its kind stays as it was.
TEST(Fold, ADifferenceSpreadsAlongGroups) {
  const Groups pairs{{"comm.a", {{0, 1}, {2, 3}, {4, 5}, {6, 7}}}};
  Fold fold = simulate::fold({0, 0, 0, 0, 0, 1, 0, 0}, pairs, {});
  EXPECT_EQ(fold.kind_of, (std::vector{0, 0, 0, 0, 1, 2, 0, 0}));
  Groups chain = pairs;
  chain["comm.b"] = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  fold = simulate::fold({0, 0, 0, 0, 0, 1, 0, 0}, chain, {});
  EXPECT_EQ(fold.kinds(), 5);
  EXPECT_EQ(fold.kind_of[2], fold.kind_of[3]);
  EXPECT_EQ(fold.kind_of[2], fold.kind_of[6]);
  // Of two machines one has a rank more.
  fold = simulate::fold({0, 0, 0}, {}, {{0, 0, 1}});
  EXPECT_EQ(fold.kind_of, (std::vector{0, 0, 1}));
}

TEST(Fold, ALargeMeshHasAsManyKindsAsStages) {
  plan::Degrees degrees;
  degrees.dp = 128;
  degrees.ep = 64;
  degrees.pp = 16;
  const plan::Mesh mesh(degrees);
  Groups groups;
  std::vector<int> listing;
  for (int r = 0; r < mesh.ranks(); ++r) listing.push_back(mesh.at(r).at(ir::Axis::pp));
  for (const char* name : {"experts", "dense", "edp", "world"}) {
    std::set<std::vector<int>> all;
    for (int r = 0; r < mesh.ranks(); ++r) all.insert(mesh.group(name, r));
    groups[std::string("comm.") + name].assign(all.begin(), all.end());
  }
  std::set<std::vector<int>> lines;
  for (int r = 0; r < mesh.ranks(); ++r) lines.insert(mesh.group("pp", r));
  groups["comm.pp.forward"].assign(lines.begin(), lines.end());
  const Fold fold = simulate::fold(listing, groups, {});
  EXPECT_EQ(fold.kinds(), 16);
  for (const int count : fold.count) EXPECT_EQ(count, 128);
}

// Real programs with durations drawn by op, cores and links shared: the same times for every rank, folded or not.
TEST(Fold, TimesAreThoseOfEveryRankByItself) {
  struct Layout {
    int pp, dp, ep;
    std::vector<int> machine_of, host_of;
    size_t kinds;
  };
  const std::vector<Layout> layouts{{2, 4, 2, {}, {}, 2},
                                    {2, 4, 4, {0, 0, 0, 0, 1, 1, 1, 1}, {}, 2},
                                    {1, 8, 2, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}, 1},
                                    {4, 2, 2, {0, 1, 0, 1, 0, 1, 0, 1}, {0, 0, 1, 1, 2, 2, 3, 3}, 4},
                                    {4, 2, 2, {0, 1, 2, 0, 1, 2, 0, 1}, {0, 0, 1, 1, 2, 2, 3, 3}, 8}};
  for (const Layout& layout : layouts) {
    plan::Plan plan = tiny_plan(layout.pp, layout.dp, true, 4);
    plan.mesh.ep = layout.ep;
    model::ModelConfig c = tiny_model();
    c.num_hidden_layers = 4;
    const plan::Lowered lowered = plan::lower(c, plan);
    simulate::SimulationInput input;
    input.groups = simulate::groups_of(lowered.program, plan::Mesh(plan.mesh));
    input.enqueue_us = 0.5;
    input.wake_us = 1.5;
    input.machine_of = layout.machine_of;
    input.host_of = layout.host_of;
    input.rows = [&](int, const ir::Issue&, size_t output) { return output == 0 ? 32 : 0; };
    const auto drawn = [](const ir::Issue& issue) {
      return RandomKey(9).with(static_cast<uint64_t>(issue.listing)).uniform(issue.op_index);
    };
    input.duration_us = [&](int, const ir::Issue& issue) { return 10 + 90 * drawn(issue); };
    input.threads = [](int, const ir::Issue& issue) {
      return issue.op->def->stream == ir::StreamKind::comm ? 0.0 : 1.0;
    };
    input.speed = [](double threads) { return std::min(1.0, 2 / std::max(1.0, threads)); };
    input.link_use = [&](int, const ir::Issue& issue) {
      const double us = issue.op->def->stream == ir::StreamKind::comm ? 8 + 60 * drawn(issue) : 0.0;
      return simulate::LinkUse{us, us};
    };
    const simulate::Simulation apart = simulate::simulate(lowered.program, input);
    input.ranks_differ = false;
    const simulate::Simulation together = simulate::simulate(lowered.program, input);
    ASSERT_EQ(apart.deadlock, "");
    ASSERT_EQ(together.deadlock, "");
    EXPECT_EQ(together.ranks.size(), layout.kinds);
    EXPECT_NEAR(together.step_us, apart.step_us, 1e-6 * apart.step_us);
    int ranks = 0;
    for (const simulate::RankResult& kind : together.ranks) ranks += kind.count;
    EXPECT_EQ(ranks, plan.ranks());
    for (int r = 0; r < plan.ranks(); ++r) {
      const simulate::RankResult &one = together.of(r), &other = apart.of(r);
      ASSERT_EQ(one.ops.size(), other.ops.size());
      EXPECT_EQ(one.reserved_bytes, other.reserved_bytes);
      for (size_t i = 0; i < one.ops.size(); ++i)
        ASSERT_NEAR(one.ops[i].end_us, other.ops[i].end_us, 1e-3) << "rank " << r << " op " << i;
    }
  }
}

}  // namespace
}  // namespace heddle::test

// The layout in which a job goes on with fewer ranks.
#include "heddle/job/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/plan/plan.h"
#include "heddle/train/run_config_plan.h"
#include "tests/planner/planner_fixture.h"

namespace heddle::job {
namespace {

constexpr const char* kSmall =
    "[model]\nhidden_size = 128\nnum_hidden_layers = 4\n[train]\nglobal_batch = 12\nmicrobatch = 1\n"
    "sequence_length = 64\n[device]\ndtype = \"f32\"\nthreads = 1\n[mesh]\ndp = 4\n"
    "[parallel]\nshard = \"weights\"\nshard_ranks = 2\n";

// Two ranks that hold a copy of the weights together divide four, but neither three nor one.
TEST(Layout, TakesAllRanksWhateverACopyOfTheWeightsLiesOn) {
  const planner::ConfigFile file(kSmall);
  for (const int slots : {4, 3, 1}) {
    Host host;
    host.name = "a";
    host.slots = slots;
    const std::optional<Layout> layout = layout_for(file.path(), {}, {host}, planner::made_profile(), 60);
    ASSERT_TRUE(layout) << slots;
    EXPECT_EQ(layout->ranks, slots);
    const bool one_copy =
        std::find(layout->set.begin(), layout->set.end(), "parallel.shard_ranks=0") != layout->set.end();
    EXPECT_TRUE(slots == 4 || one_copy) << slots;
  }
}

// The ranks get the user's settings and then the layout's: what was set for more ranks must not outlive them.
TEST(Layout, GoesBehindWhatTheUserSet) {
  const planner::ConfigFile file(kSmall);
  const std::vector<std::string> set{"mesh.tp=2",
                                     "mesh.dp=1",
                                     "mesh.pp=2",
                                     "parallel.shard=state",
                                     "parallel.shard_ranks=0",
                                     "parallel.schedule=interleaved",
                                     "parallel.chunks=2"};
  for (const int slots : {3, 2, 1}) {
    Host host;
    host.name = "a";
    host.slots = slots;
    const std::optional<Layout> layout = layout_for(file.path(), set, {host}, planner::made_profile(), 60);
    ASSERT_TRUE(layout) << slots;
    std::vector<std::string> all = set;
    all.insert(all.end(), layout->set.begin(), layout->set.end());
    const config::RunConfig run = config::read_run_config(file.path(), all);
    EXPECT_EQ(run.degrees().ranks(), layout->ranks) << slots;
    plan::check(run.model, train::plan_of(run));  // throws where it is none
  }
}

}  // namespace
}  // namespace heddle::job

// The layout in which a job goes on with fewer ranks.
#include "heddle/job/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

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
    if (slots != 4) EXPECT_TRUE(one_copy) << slots;
  }
}

}  // namespace
}  // namespace heddle::job

// What the benches of many ranks run: a step of each rank, its weights made, ops of some duration.
#include "bench/paced_run.h"

#include <gtest/gtest.h>

#include "tests/simulate/tiny_step.h"

namespace heddle::test {
namespace {

TEST(PacedRun, StepsOnRanksOfEachKindOfStage) {
  for (const auto& [pipeline, experts] : {std::pair{1, 1}, {2, 2}}) {
    const plan::Plan plan = tiny_plan(pipeline, experts, true);
    comm::ThreadWorlds thread_worlds(std::vector<int>(static_cast<size_t>(plan.ranks()), 0));
    std::vector<std::thread> ranks;
    std::vector<std::exception_ptr> failures(static_cast<size_t>(plan.ranks()));
    for (int r = 0; r < plan.ranks(); ++r) {
      ranks.emplace_back([&, r] {
        try {
          const auto world = thread_worlds.world(r);
          bench::PacedRun run(tiny_model(), plan, *world);
          run.step();
          const ir::Listing& listing =
              run.program().listings[static_cast<size_t>(run.program().listing_of(r, ir::Purpose::train))];
          for (ir::ValueId id = 0; id < std::ssize(listing.values); ++id) {
            if (listing.value(id).role != ir::Role::weight || !listing.value(id).name.ends_with("norm.weight"))
              continue;
            EXPECT_EQ(run.executor().view(run.program().listing_of(r, ir::Purpose::train), id).as<float>()[0], 1.0F)
                << listing.value(id).name;
          }
        } catch (...) {
          failures[static_cast<size_t>(r)] = std::current_exception();
          thread_worlds.abort("a rank failed");
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const std::exception_ptr& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
  }
}

}  // namespace
}  // namespace heddle::test

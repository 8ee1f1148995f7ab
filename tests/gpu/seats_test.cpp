// Which device a rank opens on its way from the configuration to the trainer, and how often.
#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/comm/threads/thread_world.h"
#include "heddle/session/rank_run.h"
#include "heddle/train/run_config_plan.h"
#include "tests/gpu/opened_seats.h"
#include "tests/support/tiny_models.h"

namespace heddle::session {
namespace {

config::RunConfig run_of(int ranks, int64_t memory_bytes) {
  config::RunConfig c;
  c.model = test::small_model();
  c.plan.mesh.dp = ranks;
  c.train.global_batch = 2 * ranks;
  c.train.microbatch = 2;
  c.train.sequence_length = 16;
  c.device.backend = "cuda";
  c.device.memory_bytes = memory_bytes;
  return c;
}

// Each opens its own alone, once: a context of another rank's device takes that rank's memory, and what is free
// there says nothing of its own. Kernels that are asked about the plan ask the device that is in use, so it is
// opened first where the memory is given, too.
TEST(Seats, ARankOpensItsOwnDeviceOnce) {
  for (const int64_t memory_bytes : {int64_t{0}, int64_t{1} << 28}) {
    for (const int ranks : {1, 2}) {
      test::opened_seats().clear();
      const config::RunConfig config = run_of(ranks, memory_bytes);
      const auto run = [&](comm::World* world) {
        train::TrainerOptions options =
            train::trainer_options_of(config, world == nullptr ? 0 : world->rank(), sharing_of(world));
        EXPECT_NE(options.device, nullptr);
        train::Trainer trainer(std::move(options), world);
        trainer.initialise();
      };
      if (ranks == 1) {
        run(nullptr);
      } else {
        comm::run_on_threads(ranks, [&](comm::World& world) { run(&world); });
      }
      std::vector<device::Seat>& opened = test::opened_seats();
      std::ranges::sort(opened, {}, &device::Seat::on_host);
      ASSERT_EQ(opened.size(), static_cast<size_t>(ranks)) << memory_bytes;
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(opened[static_cast<size_t>(r)], (device::Seat{r, ranks}));
    }
  }
}

// Options that were made for one rank and are given to several: each has its own device all the same.
TEST(Seats, OptionsOfAnotherRankLendNoDevice) {
  const config::RunConfig config = run_of(2, 0);
  const train::TrainerOptions options = train::trainer_options_of(config);
  test::opened_seats().clear();
  comm::run_on_threads(2, [&](comm::World& world) { train::Trainer trainer(options, &world); });
  EXPECT_EQ(test::opened_seats().size(), 2u);
}

}  // namespace
}  // namespace heddle::session

// Slow ranks are found and named with what is slow; victims, hot experts and noise are not.
#include "heddle/session/ranks/slow_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "heddle/base/random.h"
#include "tests/support/set_pace.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_run.h"

namespace heddle::session {
namespace {

// Steps of noise as measured on real machines: 5 % of each number, and one of fifty far out.
class Steps {
 public:
  Steps(uint64_t seed, int ranks) : key_(RandomKey(seed).with("steps")), ranks_(ranks) {}

  std::vector<train::RankWork> next(int slow = -1, WorkKind kind = WorkKind::forward, double times = 1) {
    std::vector<train::RankWork> all;
    for (int r = 0; r < ranks_; ++r) {
      train::RankWork work{0.2 * noise(), 0.4 * noise(), 0.05 * noise(), 0, 1000 * (1 + 3 * uniform())};
      work.experts_s = 2e-4 * work.expert_rows * noise();
      if (r == slow) {
        double* const hurt[] = {&work.forward_s, &work.backward_s, &work.update_s, &work.experts_s};
        *hurt[static_cast<size_t>(kind)] *= times;
      }
      all.push_back(work);
    }
    return all;
  }
  uint64_t below(uint64_t count) { return key_.bits(at_++) % count; }

 private:
  double uniform() { return static_cast<double>(key_.bits(at_++) >> 11) * 0x1p-53; }
  double noise() {
    const double usual = 1 + 0.05 * key_.normal(at_++);
    return below(50) == 0 ? usual * (1.5 + uniform()) : usual;
  }
  RandomKey key_;
  uint64_t at_ = 0;
  int ranks_;
};

TEST(SlowRanks, AreFoundAndNamed) {
  int found = 0;
  for (uint64_t draw = 0; draw < 100; ++draw) {
    const int ranks = std::array{2, 4, 8, 32}[draw % 4];
    Steps steps(draw, ranks);
    SlowRanks slow(std::vector<int>(static_cast<size_t>(ranks), 0));
    const int hurt = static_cast<int>(steps.below(static_cast<uint64_t>(ranks)));
    const auto kind = static_cast<WorkKind>(steps.below(kWorkKinds));
    const int64_t begins = 1 + static_cast<int64_t>(steps.below(100));
    std::vector<SlowRank> all;
    for (int64_t step = 1; step <= begins + 100; ++step) {
      slow.add(step, steps.next(step >= begins ? hurt : -1, kind, 1.15));
      all.insert(all.end(), slow.found().begin(), slow.found().end());
    }
    found +=
        all.size() == 1 && all[0].rank == hurt && all[0].kind == kind && all[0].since + SlowRanks::kWindow > begins;
  }
  EXPECT_GE(found, 95) << "of 100";
}

TEST(SlowRanks, CleanWindowsRaiseNoAlarm) {
  for (const int ranks : {2, 4, 8, 32}) {
    Steps steps(1000 + static_cast<uint64_t>(ranks), ranks);
    SlowRanks slow(std::vector<int>(static_cast<size_t>(ranks), 0));
    for (int64_t step = 1; step <= 3000 * SlowRanks::kWindow / ranks * 2; ++step) {
      slow.add(step, steps.next());
      ASSERT_TRUE(slow.found().empty()) << ranks << " ranks, step " << step;
    }
  }
}

TEST(SlowRanks, OnesThatRecoverAreTold) {
  Steps steps(7, 4);
  SlowRanks slow({0, 0, 0, 0});
  int64_t ended = 0;
  for (int64_t step = 1; step <= 300; ++step) {
    slow.add(step, steps.next(step <= 150 ? 2 : -1, WorkKind::backward, 1.4));
    if (!slow.ended().empty()) ended = step;
    if (step == 150) {
      ASSERT_EQ(slow.slow().size(), 1u);
      EXPECT_EQ(slow.slow()[0].rank, 2);
      EXPECT_NEAR(slow.slow()[0].excess_s, 0.16, 0.03);
    }
  }
  EXPECT_EQ(ended, 220);
  EXPECT_TRUE(slow.slow().empty());
}

// Two ranks that train, each op of theirs at its pace, and those of one rank's forward a third slower.
TEST(SlowRanks, AreFoundWhileTheyTrain) {
  config::RunConfig config = train::small_config(2);
  config.plan.mesh.dp = 2;
  train::RankTrainers ranks(train::trainer_options_of(config));
  SlowRanks slow(ranks[0].lowered().program.class_of_rank);
  std::vector<SlowRank> all;
  ranks.each([&](train::Trainer& trainer) {
    trainer.initialise();
    const ir::StepProgram& program = trainer.lowered().program;
    std::vector<std::vector<int64_t>> pace(program.listings.size());
    for (size_t s = 0; s < pace.size(); ++s) {
      for (const ir::Op& op : program.listings[s].ops) {
        const bool hurt = trainer.ranks().rank() == 1 && op.phase == ir::Phase::F;
        pace[s].push_back(hurt ? 400'000 : 300'000);
      }
    }
    set_pace(trainer.executor(), pace);
    for (int64_t step = 1; step <= SlowRanks::kWindow * SlowRanks::kWindows; ++step) {
      const train::StepResult result =
          trainer.step(train::random_sequences(trainer, 2, static_cast<uint64_t>(step)));
      if (!trainer.ranks().leads()) continue;
      slow.add(step, result.work);
      all.insert(all.end(), slow.found().begin(), slow.found().end());
    }
  });
  // Whatever else this machine's other work has slowed.
  const auto forward = std::find_if(all.begin(), all.end(), [](const SlowRank& found) {
    return found.rank == 1 && found.kind == WorkKind::forward;
  });
  ASSERT_NE(forward, all.end());
  EXPECT_EQ(forward->since, 1);
  EXPECT_NEAR(forward->times, 1.33, 0.15);
}

TEST(SlowRanks, AreComparedWithTheirCohortAlone) {
  SlowRanks slow({0, 1, 0, 1, 2});  // other stages do other work
  Steps steps(8, 5);
  for (int64_t step = 1; step <= 200; ++step) {
    std::vector<train::RankWork> work = steps.next();
    for (const size_t heavy : {1, 3, 4}) work[heavy].forward_s *= 3;
    slow.add(step, work);
    ASSERT_TRUE(slow.found().empty());
  }
  EXPECT_TRUE(std::isnan(slow.ratios()[4][0]));
  EXPECT_NEAR(slow.ratios()[1][0], 1, 0.1);
}

}  // namespace
}  // namespace heddle::session

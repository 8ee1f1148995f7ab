// A run that goes back behind steps that it left out: to the weights of the newest checkpoint from before them, and
// on with what comes next.
#include <gtest/gtest.h>

#include "heddle/session/run_checkpoint.h"
#include "heddle/train/controllers/outliers.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_models.h"
#include "tests/train/rank_trainers.h"

namespace heddle::session {
namespace {

train::TrainerOptions options_for(int dp) {
  train::TrainerOptions o;
  o.model = test::small_model();
  o.plan.mesh.dp = dp;
  o.plan.microbatches = 2 / dp;
  o.plan.sequences = 2;
  o.plan.sequence_length = 16;
  o.plan.dtype = Dtype::f32;
  o.plan.update.skip_norm_above = 2;
  o.memory_bytes = 64 << 20;
  o.length = {100};
  o.learning_rate = {.shape = train::LearningRate::Shape::constant, .peak = 3e-3};
  o.outlier_window = 2;
  return o;
}

// Of few ids, or where it is poisoned of one that is none of them.
bool step(train::RankTrainers& ranks, bool poisoned) {
  auto ids = train::random_sequences(ranks[0], ranks[0].sequences_per_step(),
                                     static_cast<uint64_t>(ranks[0].steps_done()));
  for (auto& sequence : ids) {
    for (int32_t& id : sequence) id = poisoned ? 60 : id % 4;
  }
  return ranks.step(ids).is_skipped();
}

void save(train::RankTrainers& ranks, const RunFolder& folder) {
  ranks.each([&](train::Trainer& trainer) { train::save_trainer(folder.checkpoints(), {}, trainer, 9); });
}

// The first rank's runs: what every rank holds was read from one file.
std::vector<std::vector<uint8_t>> state_of(train::RankTrainers& ranks) {
  std::vector<std::vector<uint8_t>> bytes;
  for (int r = 0; r < ranks.size(); ++r) {
    for (const train::StateTensor& tensor : ranks[r].state()) {
      if (!tensor.is_here()) continue;
      const train::StateElements held(tensor);
      const auto* first = static_cast<const uint8_t*>(held.view().data);
      bytes.emplace_back(first, first + held.view().elements() * size_of(tensor.dtype));
    }
  }
  return bytes;
}

TEST(GoBack, TakesTheNewestFromBeforeTheRow) {
  for (const int dp : {1, 2}) {
    SCOPED_TRACE(dp);
    const ScratchFolder scratch;
    const RunFolder folder{scratch.path().string()};
    train::RankTrainers ranks(options_for(dp));
    ranks.each([](train::Trainer& trainer) { trainer.initialise(); });
    const auto back = [&] {
      std::optional<int64_t> to;
      ranks.each([&](train::Trainer& trainer) {
        const std::optional<int64_t> found = return_to_checkpoint(folder, trainer);
        if (trainer.ranks().leads()) to = found;
      });
      return to;
    };
    for (int i = 0; i < 3; ++i) ASSERT_FALSE(step(ranks, false));
    EXPECT_FALSE(back());  // there is none, and nothing changes
    EXPECT_EQ(ranks[0].controllers().get<train::Outliers>().history().rolled_back_to, 0);
    save(ranks, folder);
    const auto then = state_of(ranks);
    ASSERT_FALSE(step(ranks, false));
    ASSERT_TRUE(step(ranks, true));
    save(ranks, folder);  // within the row: not this one
    ASSERT_TRUE(step(ranks, true));
    ASSERT_FALSE(state_of(ranks) == then);

    EXPECT_EQ(back(), 3);
    EXPECT_TRUE(state_of(ranks) == then);
    EXPECT_EQ(ranks[0].steps_done(), 6);
    const train::OutlierHistory& history = ranks[dp - 1].controllers().get<train::Outliers>().history();
    EXPECT_EQ(history.left_out, 3);  // one of them had been applied
    EXPECT_EQ(history.skipped, 2);
    EXPECT_EQ(history.in_a_row, 0);
    EXPECT_EQ(history.rolled_back_to, 1);
    EXPECT_EQ(history.norms.size(), 2u);

    // On as from the checkpoint, but with other data: those of the seventh step.
    EXPECT_FALSE(step(ranks, false));
    train::RankTrainers again(options_for(dp));
    again.each([&](train::Trainer& trainer) {
      train::load_trainer(train::Checkpoint(folder.checkpoints() + "/step-000003"), trainer);
      trainer.controllers().get<train::Outliers>().set_history({.left_out = 3});
      trainer.set_done({6, 0});
    });
    EXPECT_FALSE(step(again, false));
    EXPECT_TRUE(state_of(again) == state_of(ranks));
  }
}

}  // namespace
}  // namespace heddle::session

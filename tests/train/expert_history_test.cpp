// What a run knows of its experts' load: which layers are uneven, with a gap between becoming so and ceasing to be;
// and a run that goes on from a checkpoint chooses the copies of one that never stopped.
#include "heddle/train/controllers/expert_history.h"

#include <gtest/gtest.h>

#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_run.h"

namespace heddle::train {
namespace {

/// Learns a load of layer 3, two experts on each of two ranks, so often that only it counts.
void settle(ExpertHistory& history, const std::vector<double>& rows_E) {
  for (int i = 0; i < 60; ++i) history.learn({{3, rows_E}}, 2);
}

TEST(ExpertHistory, ALayerIsUnevenUntilItIsAllButEven) {
  ExpertHistory history;
  settle(history, {11, 0, 10, 0});  // 1.05: between the two
  EXPECT_TRUE(history.uneven_rows().empty());
  settle(history, {6, 6, 5, 4});  // 1.14
  ASSERT_EQ(history.uneven_rows().size(), 1u);
  EXPECT_NEAR(history.uneven_rows().at(3)[0], 6, 1e-9);
  settle(history, {11, 0, 10, 0});
  EXPECT_EQ(history.uneven_rows().size(), 1u) << "it stays until it has evened out";
  settle(history, {51, 0, 50, 0});  // 1.01
  EXPECT_TRUE(history.uneven_rows().empty());
}

TEST(ExpertHistory, AStepCountsHalfAsMuchAsTheOneBehindIt) {
  ExpertHistory history;
  for (const double rows : {8.0, 16.0, 4.0}) {
    const std::vector<double> rows_E{rows, 0};
    history.learn({{0, rows_E}}, 2);
  }
  EXPECT_EQ(history.layers.at(0).rows_E, (std::vector<double>{8, 0}));  // (12 + 4) ÷ 2
}

TrainerOptions options_with(const std::vector<std::string>& set) {
  config::RunConfig c = small_config(8);
  c.train.warmup_steps = 0;
  c.train.learning_rate = 3e-3;
  return trainer_options_of(with_keys(c, set));
}

double step(RankTrainers& ranks) {
  const int64_t number = ranks[0].steps_done();
  std::vector<std::vector<int32_t>> ids =
      random_sequences(ranks[0], ranks[0].sequences_per_step(), static_cast<uint64_t>(number));
  for (std::vector<int32_t>& sequence : ids) {
    for (int32_t& id : sequence) id %= 3;  // few kinds of tokens have few experts
  }
  return ranks.step(ids).next_token_loss();
}

TEST(ExpertHistory, StandsInCheckpoints) {
  const std::vector<std::string> set{"mesh.dp=2", "mesh.ep=2", "device.dtype=bf16", "moe.replicas=2",
                                     "moe.replicas_from=history"};
  const ScratchFolder folder;
  RankTrainers first(options_with(set)), second(options_with(set));
  first.each([](Trainer& trainer) { trainer.initialise(); });
  for (int i = 0; i < 3; ++i) step(first);
  EXPECT_FALSE(first[0].controllers().get<ExpertLoads>().history().uneven_rows().empty())
      << "nothing to have copies of";
  EXPECT_EQ(first[0].controllers().get<ExpertLoads>().history(),
            first[1].controllers().get<ExpertLoads>().history());
  const auto sent = [](RankTrainers& ranks) {
    const auto traffic = ranks[0].traffic().at("comm.copies");
    return traffic.within_node_bytes + traffic.across_nodes_bytes;
  };
  EXPECT_GT(sent(first), 0) << "no copies were made";
  first.each([&](Trainer& trainer) { save_trainer(folder.path().string(), {}, trainer); });
  second.each([&](Trainer& trainer) {
    trainer.initialise();
    load_trainer(open_checkpoint(folder.path().string()), trainer);
  });
  EXPECT_EQ(first[1].controllers().get<ExpertLoads>().history(),
            second[1].controllers().get<ExpertLoads>().history());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(first), step(second)) << "step " << i;
  EXPECT_EQ(first[0].controllers().get<ExpertLoads>().history(),
            second[0].controllers().get<ExpertLoads>().history());
}

}  // namespace
}  // namespace heddle::train

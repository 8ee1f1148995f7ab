// The mean of checkpoints: of weights and biases, beside the newest's moments and state.
#include "heddle/train/average.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_models.h"
#include "tests/train/rank_trainers.h"

namespace heddle::train {
namespace {

TrainerOptions options_for_average(int dp) {
  TrainerOptions o;
  o.model = test::small_model();
  o.model.topk_bias = true;
  o.model.bias_update_rate = 1e-2;
  o.plan.mesh.dp = dp;
  o.plan.microbatches = 2 / dp;
  o.plan.sequences = 2;
  o.plan.sequence_length = 16;
  o.plan.dtype = Dtype::f32;
  o.memory_bytes = 64 << 20;
  o.length = {100};
  o.learning_rate = {.shape = LearningRate::Shape::constant, .peak = 3e-3};
  return o;
}

std::vector<float> values(const Checkpoint& checkpoint, const std::string& name) {
  const SavedTensor& tensor = checkpoint.at(name);
  std::vector<float> all(static_cast<size_t>(tensor.elements()));
  tensor.read(0, tensor.elements(), Dtype::f32, all.data());
  return all;
}

TEST(Average, IsTheMeanOfTheNewest) {
  const ScratchFolder scratch;
  const std::string from = scratch / "from", to = scratch / "to", one = scratch / "one";
  RankTrainers ranks(options_for_average(2));
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  for (int step = 0; step < 4; ++step) {
    ranks.step(random_sequences(ranks[0], ranks[0].sequences_per_step(), static_cast<uint64_t>(step)));
    ranks.each([&](Trainer& trainer) { save_trainer(from, {}, trainer, 9); });
  }
  EXPECT_EQ(save_average(from, 3, to), (std::vector<int64_t>{2, 3, 4}));
  const Checkpoint a(from + "/step-000002"), b(from + "/step-000003"), c(from + "/step-000004"),
      mean(to + "/step-000004");
  CheckpointState state = mean.state();
  EXPECT_NE(state.weights_digest, c.state().weights_digest);
  state.weights_digest = c.state().weights_digest;
  EXPECT_EQ(state, c.state());
  int moved = 0;
  for (const SavedTensor& tensor : mean.tensors()) {
    const std::vector<float> x = values(a, tensor.name), y = values(b, tensor.name), z = values(c, tensor.name);
    std::vector<float> expected = z;
    if (!tensor.name.starts_with("m.") && !tensor.name.starts_with("v.")) {
      for (size_t i = 0; i < z.size(); ++i)
        expected[i] = static_cast<float>((double{x[i]} + double{y[i]} + double{z[i]}) / 3);
      moved += expected != z ? 1 : 0;
    }
    EXPECT_EQ(values(mean, tensor.name), expected) << tensor.name;
  }
  EXPECT_GT(moved, 5);

  // Any layout trains on from it; the mean of one is that one.
  RankTrainers other(options_for_average(1));
  other.each([&](Trainer& trainer) { load_trainer(mean, trainer); });
  EXPECT_EQ(other[0].steps_done(), 4);
  EXPECT_EQ(save_average(from, 1, one), std::vector<int64_t>{4});
  for (const SavedTensor& tensor : c.tensors())
    EXPECT_EQ(values(Checkpoint(one + "/step-000004"), tensor.name), values(c, tensor.name));
  EXPECT_THROW(save_average(from, 5, scratch / "none"), ConfigError);
}

}  // namespace
}  // namespace heddle::train

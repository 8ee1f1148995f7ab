// The trainer on a small model: it learns, repeats itself bit for bit, evaluates, predicts and finds what is not
// finite.
#include "heddle/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "heddle/base/random.h"
#include "heddle/train/evaluate.h"
#include "heddle/train/logits.h"
#include "heddle/train/parameters.h"
#include "tests/support/tiny_models.h"

namespace heddle::train {
namespace {

TrainerOptions options_for_trainer(const std::string& backend, Dtype dtype) {
  TrainerOptions o;
  o.model = test::small_model();
  o.model.num_nextn_predict_layers = 1;
  o.model.sequence_aux_loss_alpha = 1e-3;
  o.plan.microbatches = 2;
  o.plan.sequences = 4;
  o.plan.sequence_length = 16;
  o.plan.dtype = dtype;
  o.backend = backend;
  o.threads = 2;
  o.memory_bytes = 64 << 20;
  o.length = {100};
  o.learning_rate = {.shape = LearningRate::Shape::constant, .peak = 5e-3};
  o.seed = 5;
  return o;
}

// Sequences that count upwards from a random start: easily learnt.
std::vector<std::vector<int32_t>> counting(const Trainer& trainer, int64_t count, uint64_t seed) {
  std::vector<std::vector<int32_t>> sequences;
  for (int64_t i = 0; i < count; ++i) {
    const auto start = RandomKey(seed).bits(static_cast<uint64_t>(i));
    std::vector<int32_t>& s = sequences.emplace_back();
    for (int64_t t = 0; t < trainer.sequence_tokens(); ++t) {
      s.push_back(static_cast<int32_t>((start + static_cast<uint64_t>(t)) % 64));
    }
  }
  return sequences;
}

std::vector<double> losses(Trainer& trainer, int steps) {
  std::vector<double> result;
  for (int i = 0; i < steps; ++i) {
    const auto seed = static_cast<uint64_t>(trainer.steps_done());
    result.push_back(trainer.step(counting(trainer, trainer.sequences_per_step(), seed)).next_token_loss());
  }
  return result;
}

class TrainerTest : public testing::TestWithParam<std::pair<const char*, Dtype>> {};

TEST_P(TrainerTest, LearnsToCountAndRepeatsItself) {
  Trainer a(options_for_trainer(GetParam().first, GetParam().second)),
      b(options_for_trainer(GetParam().first, GetParam().second));
  a.initialise();
  b.initialise();
  const std::vector<double> first = losses(a, 40);
  EXPECT_NEAR(first.front(), std::log(64.0), 0.3);
  EXPECT_LT(first.back(), 0.5 * first.front());
  EXPECT_EQ(first, losses(b, 40));
  const double heldout = evaluate(a, counting(a, 5, 999));
  EXPECT_LT(heldout, 0.6 * first.front());
  const std::vector<int32_t> prompt{3, 4, 5, 6, 7};
  const std::vector<float> logits = next_logits(a, prompt);
  EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), 8);
}

INSTANTIATE_TEST_SUITE_P(Backends, TrainerTest,
                         testing::Values(std::pair{"reference", Dtype::f32}, std::pair{"host", Dtype::f32},
                                         std::pair{"host", Dtype::bf16}));

TEST(Trainer, NamesTheFirstValueThatIsNotFinite) {
  Trainer trainer(options_for_trainer("reference", Dtype::f32));
  trainer.initialise();
  for (const StateTensor& tensor : trainer.state()) {
    if (tensor.name == "model.layers.1.mlp.experts.down_proj.weight") tensor.view.as<float>()[0] = INFINITY;
  }
  trainer.weights_changed();
  try {
    losses(trainer, 1);
    FAIL() << "an infinite weight went unnoticed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("layer 1"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("grouped_linear"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace heddle::train

// Masked targets: the loss is the mean over the whole global batch's other targets, however it is cut into
// microbatches and ranks, and what is masked moves no weight.
#include <gtest/gtest.h>

#include "heddle/base/random.h"
#include "heddle/train/evaluate.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_options.h"

namespace heddle::train {
namespace {

TrainerOptions options_for_masked_targets(plan::Degrees mesh, int64_t sequences) {
  TrainerOptions o = small_options(mesh, sequences);
  o.model.num_nextn_predict_layers = 1;
  return o;
}

// From all targets of the first sequence to a few of the last.
Sequences masked_sequences(const Trainer& trainer) {
  Sequences all(random_sequences(trainer, kSequences, 3));
  for (uint64_t i = 0; i < kSequences; ++i) {
    std::vector<uint8_t>& mask = all.masked.emplace_back();
    for (int64_t t = 0; i > 0 && t < trainer.sequence_tokens(); ++t)
      mask.push_back(RandomKey(7).with(i).bits(static_cast<uint64_t>(t)) % 8 < i);
  }
  return all;
}

TEST(MaskedTargets, LossIsTheMeanOverTheGlobalBatch) {
  Trainer one(options_for_masked_targets({}, 1));
  one.initialise();
  const Sequences sequences = masked_sequences(one);
  double sum = 0, targets = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    sum += score(one, sequences.part(i, 1))[0];
    for (size_t t = 1; t <= 16; ++t) targets += sequences.is_target(i, t);
  }
  ASSERT_LT(targets, 16 * kSequences * 2 / 3);
  EXPECT_NEAR(evaluate(one, sequences), sum / targets, 1e-12);
  const StepResult expected = one.step(sequences);
  EXPECT_NEAR(expected.next_token_loss(), sum / targets, 1e-12);
  struct Cut {
    plan::Degrees mesh;
    int64_t sequences;
  };
  for (const Cut& cut :
       {Cut{{.dp = 1}, 4}, Cut{{.dp = 2}, 1}, Cut{{.tp = 2, .dp = 2}, 2}, Cut{{.cp = 2}, 2}, Cut{{.pp = 2}, 1}}) {
    RankTrainers ranks(options_for_masked_targets(cut.mesh, cut.sequences));
    ranks.each([](Trainer& trainer) { trainer.initialise(); });
    StepResult result;
    ranks.each([&](Trainer& trainer) {
      StepResult own = trainer.step(sequences);
      if (trainer.ranks().leads()) result = std::move(own);
    });
    EXPECT_NEAR(result.next_token_loss(), expected.next_token_loss(), 1e-10);
    EXPECT_NEAR(result.depth_losses()[0], expected.depth_losses()[0], 1e-10);
    EXPECT_NEAR(result.gradient_norm(), expected.gradient_norm(), 1e-9 * expected.gradient_norm());
  }
}

// Ids that are masked and no input either, for they stand last, may be any.
TEST(MaskedTargets, WhatIsMaskedMovesNothing) {
  Trainer a(options_for_masked_targets({}, 2)), b(options_for_masked_targets({}, 2));
  a.initialise();
  b.initialise();
  Sequences sequences(random_sequences(a, kSequences, 3)), others = sequences;
  for (size_t i = 0; i < kSequences; ++i) {
    std::vector<uint8_t> mask(sequences.tokens[i].size(), 0);
    for (size_t t = 16; t < mask.size(); ++t) {
      mask[t] = 1;
      others.tokens[i][t] = (others.tokens[i][t] + 1) % 64;
    }
    mask[3] = 1;
    sequences.masked.push_back(mask);
    others.masked.push_back(mask);
  }
  EXPECT_EQ(a.step(sequences).next_token_loss(), b.step(others).next_token_loss());
  EXPECT_NE(a.step(sequences.tokens).next_token_loss(), b.step(others.tokens).next_token_loss());
}

}  // namespace
}  // namespace heddle::train

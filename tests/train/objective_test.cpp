// What a step learns: pairs of answers, targets by their weights, the squares of the logits' log-sum-exp, one
// sample at a time of those packed together; and the average of weights that is kept, and steps of fewer
// microbatches.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "heddle/base/random.h"
#include "heddle/train/evaluate.h"
#include "heddle/train/step/preference.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_options.h"

namespace heddle::train {
namespace {

struct Cut {
  plan::Degrees mesh;
  int64_t sequences;
};
const Cut kCuts[] = {Cut{{.dp = 1}, 4}, Cut{{.dp = 2}, 2},          Cut{{.tp = 2, .dp = 2}, 2},
                     Cut{{.cp = 2}, 2}, Cut{{.tp = 2, .cp = 2}, 4}, Cut{{.pp = 2}, 2}};

StepResult first_step(const TrainerOptions& options, const Sequences& sequences) {
  RankTrainers ranks(options);
  StepResult result;
  ranks.each([&](Trainer& trainer) {
    trainer.initialise();
    StepResult own = trainer.step(sequences);
    if (trainer.ranks().leads()) result = std::move(own);
  });
  return result;
}

Sequences masked_sequences_objective(const Trainer& trainer) {
  Sequences all(random_sequences(trainer, kSequences, 3));
  for (uint64_t i = 0; i < kSequences; ++i) {
    std::vector<uint8_t>& mask = all.masked.emplace_back();
    for (int64_t t = 0; t < trainer.sequence_tokens(); ++t)
      mask.push_back(RandomKey(7).with(i).bits(static_cast<uint64_t>(t)) % 3 == 0);
  }
  return all;
}

TEST(Preference, LossIsTheFormulaInAnyLayout) {
  TrainerOptions options = small_options({}, 2);
  options.plan.objective = {.learns = model::Learns::dpo, .beta = 0.3, .label_smoothing = 0.1};
  options.plan.evaluates = true;
  Trainer one(options);
  one.initialise();
  Sequences sequences = masked_sequences_objective(one);
  const std::vector<double> losses = sequence_losses(one, sequences);
  for (size_t i = 0; i < losses.size(); ++i) sequences.references.push_back(losses[i] + 4 * RandomKey(9).normal(i));
  const Preference expected = preference_of(losses, sequences.references, options.plan.objective);
  const StepResult step = one.step(sequences);
  EXPECT_NEAR(step.loss(), expected.loss, 1e-12);
  EXPECT_NEAR(step.total(model::kRewardMargin), expected.margin, 1e-12);
  EXPECT_NEAR(step.total(model::kRewardAccuracy), expected.accuracy, 1e-12);
  EXPECT_NEAR(step.total(model::kChosenReward) - step.total(model::kRejectedReward), expected.margin, 1e-12);
  for (const Cut& cut : kCuts) {
    TrainerOptions other = small_options(cut.mesh, cut.sequences);
    other.plan.objective = options.plan.objective;
    const StepResult result = first_step(other, sequences);
    EXPECT_NEAR(result.loss(), step.loss(), 1e-10);
    EXPECT_NEAR(result.total(model::kRewardMargin), expected.margin, 1e-10);
    EXPECT_NEAR(result.gradient_norm(), step.gradient_norm(), 1e-9 * step.gradient_norm());
  }
}

TEST(Preference, WhatHasNoReferenceCountsNothing) {
  TrainerOptions options = small_options({}, 4);
  options.plan.objective = {.learns = model::Learns::dpo};
  Trainer a(options), b(options);
  a.initialise();
  b.initialise();
  Sequences sequences = masked_sequences_objective(a), others = sequences;
  sequences.references.assign(kSequences, 20.0);
  sequences.references[2] = sequences.references[3] = std::nan("");
  others.references = sequences.references;
  others.tokens[2][5] = (others.tokens[2][5] + 1) % 64;
  EXPECT_EQ(a.step(sequences).loss(), b.step(others).loss());
}

TEST(LabelWeights, LossIsTheMeanByThem) {
  TrainerOptions options = small_options({}, 1);
  options.model.num_nextn_predict_layers = 1;
  options.plan.evaluates = true;
  Trainer plain(options);
  plain.initialise();
  Sequences sequences = masked_sequences_objective(plain);
  double sum = 0, weights = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const float weight = 0.25F * static_cast<float>(i);
    const double loss = score(plain, sequences.part(i, 1))[0];
    for (size_t t = 0; t < 16; ++t) weights += static_cast<double>(weight) * sequences.label_weight(i, t, 1);
    sum += static_cast<double>(weight) * loss;
  }
  for (size_t i = 0; i < sequences.size(); ++i)
    sequences.weights.emplace_back(sequences.tokens[i].size(), 0.25F * static_cast<float>(i));
  const double expected = sum / weights;
  options.plan.weighs_labels = true;
  const StepResult step = first_step(options, sequences);
  EXPECT_NEAR(step.next_token_loss(), expected, 1e-12);
  for (const Cut& cut : kCuts) {
    TrainerOptions other = small_options(cut.mesh, cut.sequences);
    other.model = options.model;
    other.plan.weighs_labels = true;
    const StepResult result = first_step(other, sequences);
    EXPECT_NEAR(result.next_token_loss(), expected, 1e-10);
    EXPECT_NEAR(result.depth_losses()[0], step.depth_losses()[0], 1e-10);
    EXPECT_NEAR(result.gradient_norm(), step.gradient_norm(), 1e-9 * step.gradient_norm());
  }
}

TEST(LogitZLoss, IsTheSameInAnyLayout) {
  TrainerOptions options = small_options({}, 1);
  options.model.num_nextn_predict_layers = 1;
  Trainer plain(options);
  plain.initialise();
  const Sequences sequences = masked_sequences_objective(plain);
  const StepResult without = plain.step(sequences);
  options.plan.objective.logit_z_loss = 0.01;
  const StepResult step = first_step(options, sequences);
  EXPECT_EQ(step.next_token_loss(), without.next_token_loss());
  EXPECT_GT(step.total(model::kLogitZLoss), 1);  // about twice ln² 64
  EXPECT_NE(step.gradient_norm(), without.gradient_norm());
  for (const Cut& cut : kCuts) {
    TrainerOptions other = small_options(cut.mesh, cut.sequences);
    other.model = options.model;
    other.plan.objective = options.plan.objective;
    const StepResult result = first_step(other, sequences);
    EXPECT_NEAR(result.total(model::kLogitZLoss), step.total(model::kLogitZLoss), 1e-9);
    EXPECT_NEAR(result.gradient_norm(), step.gradient_norm(), 1e-9 * step.gradient_norm());
  }
}

// Two samples side by side, with a depth: no label of the first lies in the second, and where documents are apart
// each is as if it stood alone.
TEST(PackedTogether, NoLabelLiesInTheNextSample) {
  TrainerOptions options = small_options({}, 1);
  options.model.num_nextn_predict_layers = 2;
  options.plan.documents_apart = true;
  Trainer a(options), b(options);
  a.initialise();
  b.initialise();
  Sequences sequences(random_sequences(a, kSequences, 3));
  for (std::vector<int32_t>& tokens : sequences.tokens) {
    std::vector<Begins>& begins = sequences.begins.emplace_back(tokens.size(), Begins::nothing);
    begins[7] = Begins::sample;
    std::vector<uint8_t>& mask = sequences.masked.emplace_back(tokens.size(), 1);
    std::fill(mask.begin() + 1, mask.begin() + 7, uint8_t{0});  // targets of the first alone
  }
  double labels = 0;
  for (size_t t = 0; t < 16; ++t) labels += sequences.label_weight(0, t, 3);
  EXPECT_EQ(labels, 4);
  // The same with the second sample's ids as targets: but those whose labels would reach across are the same.
  Sequences all = sequences;
  for (std::vector<uint8_t>& mask : all.masked) std::fill(mask.begin() + 8, mask.end(), uint8_t{0});
  for (size_t distance = 1; distance <= 3; ++distance) {
    for (size_t t = 0; t < 7; ++t)
      EXPECT_EQ(all.label_weight(0, t, distance), t + distance < 7 ? 1 : 0) << t << " " << distance;
  }
  // What the second sample is, the first does not see.
  Sequences others = sequences;
  for (std::vector<int32_t>& tokens : others.tokens) {
    for (size_t t = 7; t < tokens.size(); ++t) tokens[t] = (tokens[t] + 1) % 64;
  }
  const StepResult first = a.step(sequences), second = b.step(others);
  EXPECT_EQ(first.next_token_loss(), second.next_token_loss());
  EXPECT_EQ(first.depth_losses(), second.depth_losses());
}

std::vector<double> numbers_of(const StateTensor& tensor) {
  const StateElements elements(tensor);
  std::vector<double> all;
  for (int64_t i = 0; i < elements.view().elements(); ++i) all.push_back(elements.view().as<double>()[i]);
  return all;
}

TEST(AverageOfWeights, FollowsTheMasters) {
  constexpr double kDecay = 0.75;
  for (const passes::OptimizerRule rule : {passes::OptimizerRule::adamw, passes::OptimizerRule::muon}) {
    for (const plan::Degrees& mesh : {plan::Degrees{.dp = 1}, plan::Degrees{.dp = 2}}) {
      TrainerOptions options = small_options(mesh, 2);
      options.plan.update.rule = rule;
      options.plan.update.average_decay = kDecay;
      options.plan.update.skip_norm_above = 100;  // a step that is left out moves nothing
      RankTrainers ranks(options);
      ranks.each([&](Trainer& trainer) {
        trainer.initialise();
        std::map<std::string, std::vector<double>> averages;
        for (const StateTensor& tensor : trainer.state()) {
          if (tensor.is_master && tensor.parameter->trained)
            averages["average." + tensor.name] = numbers_of(tensor);
        }
        for (uint64_t s = 0; s < 3; ++s) {
          trainer.step(random_sequences(trainer, kSequences, s));
          const std::vector<StateTensor> state = trainer.state();
          for (const StateTensor& tensor : state) {
            if (!tensor.is_master || !averages.contains("average." + tensor.name)) continue;
            const std::vector<double> master = numbers_of(tensor);
            std::vector<double>& average = averages.at("average." + tensor.name);
            for (size_t i = 0; i < master.size(); ++i) average[i] += (1 - kDecay) * (master[i] - average[i]);
          }
          int found = 0;
          for (const StateTensor& tensor : state) {
            if (!tensor.is_average()) continue;
            ++found;
            EXPECT_EQ(numbers_of(tensor), averages.at(tensor.name)) << tensor.name;
          }
          EXPECT_GT(found, 10);
        }
        const std::vector<StateTensor> state = trainer.state();
        copy_averages(state, Average::becomes_master);
        for (const StateTensor& tensor : state) {
          if (!tensor.is_master || !averages.contains("average." + tensor.name)) continue;
          EXPECT_EQ(numbers_of(tensor), averages.at("average." + tensor.name));
        }
      });
    }
  }
}

// Steps of 2, 4 and 8 sequences by one program: what programs of these sizes make of them.
TEST(FewerMicrobatches, AreThoseOfASmallerProgram) {
  for (const plan::Degrees& mesh : {plan::Degrees{.dp = 1}, plan::Degrees{.dp = 2}, plan::Degrees{.pp = 2}}) {
    for (const char* schedule : {"1f1b", "zb_h1"}) {
      if (mesh.pp == 1 && std::string_view(schedule) != "1f1b") continue;
      TrainerOptions options = small_options(mesh, 1);
      options.plan.parallel.schedule = schedule;
      for (int m = options.plan.microbatches / 4; m < options.plan.microbatches; m *= 2)
        options.plan.fewer_microbatches.push_back(m);
      RankTrainers growing(options);
      growing.each([](Trainer& trainer) { trainer.initialise(); });
      for (const int64_t sequences : {2, 4, 8}) {
        TrainerOptions fixed = options;
        fixed.plan.fewer_microbatches.clear();
        fixed.plan.microbatches = static_cast<int>(sequences / mesh.dp);
        std::vector<std::vector<int32_t>> tokens = random_sequences(growing[0], sequences, 77);
        RankTrainers alone(fixed);
        alone.each([](Trainer& trainer) { trainer.initialise(); });
        RankTrainers same(options);
        same.each([](Trainer& trainer) { trainer.initialise(); });
        const StepResult a = same.step(tokens), b = alone.step(tokens);
        EXPECT_EQ(a.next_token_loss(), b.next_token_loss()) << schedule << " " << sequences;
        EXPECT_EQ(a.gradient_norm(), b.gradient_norm()) << schedule << " " << sequences;
        EXPECT_EQ(a.tokens, b.tokens);
        EXPECT_TRUE(std::isfinite(growing.step(tokens).next_token_loss()));
      }
    }
  }
}

}  // namespace
}  // namespace heddle::train

// Steps that are left out: whatever made a step an outlier, the run goes on with the bits of one that never made
// its update, in every layout, with every home of the state, and over a checkpoint.
#include "heddle/train/controllers/outliers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_run.h"

namespace heddle::train {
namespace {

constexpr int kWindow = 3, kPoisoned = 5, kSteps = 8;
constexpr const char *kByNorm = "train.skip_norm_above=2", *kByLoss = "train.skip_loss_above=1.08";

TrainerOptions options_with_outliers(const std::vector<std::string>& set) {
  config::RunConfig c = small_config(8);
  c.model.num_hidden_layers = 4;
  c.model.num_nextn_predict_layers = 1;
  c.model.topk_bias = true;
  c.model.bias_update_rate = 1e-3;
  c.train.warmup_steps = 0;
  c.train.learning_rate = 3e-3;
  c.train.skip_window = kWindow;
  return trainer_options_of(with_keys(c, set));
}

// Ids of a few kinds, which a model soon expects; a poisoned batch is one id that it has not seen.
Sequences batch_of(const Trainer& trainer, int step) {
  std::vector<std::vector<int32_t>> ids =
      random_sequences(trainer, trainer.sequences_per_step(), 11 + static_cast<uint64_t>(step));
  for (std::vector<int32_t>& sequence : ids) {
    for (int32_t& id : sequence) id = step == kPoisoned ? 60 : id % 4;
  }
  return ids;
}

struct OutliersOutcome {
  std::vector<double> losses;  // of the steps that were applied
  std::vector<int64_t> skipped;
  std::map<std::string, std::vector<double>> state;
};

double number_at(const device::TensorView& view, int64_t i) {
  switch (view.dtype) {
    case Dtype::f64: return view.as<double>()[i];
    case Dtype::bf16: return view.as<bf16>()[i];
    case Dtype::u8: return view.as<uint8_t>()[i];
    default: return view.as<float>()[i];
  }
}

std::map<std::string, std::vector<double>> state_of(RankTrainers& ranks) {
  std::map<std::string, std::vector<double>> state;
  for (int r = 0; r < ranks.size(); ++r) {
    for (const StateTensor& tensor : ranks[r].state()) {
      if (!tensor.is_here()) continue;
      const StateElements held(tensor);
      std::vector<double>& whole = state[tensor.name];
      whole.resize(static_cast<size_t>(tensor.elements()));
      for (const model::Extent& run : ranks[r].held_extents(tensor)) {
        for (int64_t i = 0; i < run.count; ++i) {
          whole[static_cast<size_t>(run.whole + i)] = number_at(held.view(), run.local + i);
        }
      }
    }
  }
  return state;
}

// The poisoned step is made as any other, or never. The learning rate is constant, so its number is of no weight.
void take(RankTrainers& ranks, int step, bool passes_over, OutliersOutcome& outcome) {
  ranks.each([&](Trainer& trainer) {
    if (passes_over && step == kPoisoned) return;
    const StepResult result = trainer.step(batch_of(trainer, step));
    if (!trainer.ranks().leads()) return;
    if (result.is_skipped()) {
      outcome.skipped.push_back(result.step);
    } else {
      outcome.losses.push_back(result.next_token_loss());
    }
  });
}

OutliersOutcome train_with_outliers(const std::vector<std::string>& set, bool passes_over) {
  RankTrainers ranks(options_with_outliers(set));
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  OutliersOutcome outcome;
  for (int step = 0; step < kSteps; ++step) take(ranks, step, passes_over, outcome);
  outcome.state = state_of(ranks);
  return outcome;
}

struct OutliersCase {
  std::string name;
  std::vector<std::string> set;
  friend std::ostream& operator<<(std::ostream& out, const OutliersCase& c) { return out << c.name; }
};

class SkippedStep : public testing::TestWithParam<OutliersCase> {};

TEST_P(SkippedStep, LeavesTheBitsOfARunWithoutIt) {
  const OutliersOutcome without = train_with_outliers(GetParam().set, true);
  EXPECT_TRUE(without.skipped.empty());
  for (const char* rule : {kByNorm, kByLoss}) {
    SCOPED_TRACE(rule);
    std::vector<std::string> set = GetParam().set;
    const bool exact = std::find(set.begin(), set.end(), "train.exact_sums=true") != set.end();
    if (exact && rule == kByLoss) continue;  // refused
    set.emplace_back(rule);
    const OutliersOutcome skips = train_with_outliers(set, false);
    EXPECT_EQ(skips.skipped, std::vector<int64_t>{kPoisoned + 1});
    EXPECT_EQ(skips.losses, without.losses);
    EXPECT_TRUE(skips.state == without.state);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, SkippedStep,
                         testing::ValuesIn(std::vector<OutliersCase>{
                             {"one_rank", {}},
                             {"one_rank_bf16", {"device.dtype=bf16"}},
                             {"split_masters", {"device.dtype=bf16", "memory.master=split"}},
                             {"moments_in_fp8", {"device.dtype=bf16", "train.moments=fp8"}},
                             {"split_masters_and_fp8",
                              {"mesh.dp=2", "device.dtype=bf16", "memory.master=split", "train.moments=fp8"}},
                             {"muon", {"device.dtype=bf16", "train.optimizer=muon"}},
                             {"state_swapped", {"device.dtype=bf16", "memory.optimizer=swap"}},
                             {"updates_on_host", {"device.dtype=bf16", "memory.optimizer=host"}},
                             {"exact_sums", {"mesh.dp=2", "device.dtype=f32", "train.exact_sums=true"}},
                             {"data", {"mesh.dp=2", "device.dtype=bf16"}},
                             {"muon_of_data_and_tensor", {"mesh.dp=2", "mesh.tp=2", "train.optimizer=muon"}},
                             {"pipeline", {"mesh.pp=2", "parallel.schedule=zb_v"}},
                             {"dual_pipe", {"mesh.pp=2", "parallel.schedule=dual_pipe"}},
                             {"three_ranks", {"mesh.pp=3"}},
                             {"experts", {"mesh.dp=2", "mesh.ep=2"}},
                             {"context", {"mesh.cp=2"}}}),
                         [](const auto& info) { return info.param.name; });

TEST(SkippedSteps, AreThoseThatAreNotFinite) {
  for (const char* layout : {"mesh.dp=1", "mesh.dp=2", "mesh.pp=2"}) {
    SCOPED_TRACE(layout);
    RankTrainers ranks(options_with_outliers({layout, kByNorm, "device.dtype=f32"}));
    ranks.each([](Trainer& trainer) { trainer.initialise(); });
    OutliersOutcome outcome;
    take(ranks, 0, false, outcome);
    const auto before = state_of(ranks);
    std::vector<float> kept(static_cast<size_t>(ranks.size()), 0);  // of each rank's run of the weight
    const auto spoil = [&](bool spoils) {
      ranks.each([&](Trainer& trainer) {
        for (const StateTensor& tensor : trainer.state()) {
          if (tensor.name != "model.norm.weight" || !tensor.is_here()) continue;
          const StateElements held(tensor);
          auto* first = held.view().as<float>();
          float& own = kept[static_cast<size_t>(trainer.ranks().rank())];
          if (spoils) own = *first;
          *first = spoils ? std::numeric_limits<float>::quiet_NaN() : own;
          held.put();
        }
        trainer.weights_changed();
      });
    };
    spoil(true);
    take(ranks, 1, false, outcome);
    EXPECT_EQ(outcome.skipped, std::vector<int64_t>{2});
    spoil(false);
    EXPECT_TRUE(state_of(ranks) == before);
    take(ranks, 2, false, outcome);
    EXPECT_EQ(outcome.losses.size(), 2u);
    EXPECT_EQ(ranks[0].controllers().get<Outliers>().history().left_out, 1);
  }
}

// Between the poisoned step and the checkpoint lies nothing, and the window is half of the run before.
TEST(SkippedSteps, AreRememberedByCheckpointsOfOtherLayouts) {
  const std::vector<std::string> rule{kByNorm, "train.exact_sums=true", "device.dtype=f32"};
  const auto laid_out = [&](const char* mesh) {
    std::vector<std::string> set = rule;
    set.emplace_back(mesh);
    return options_with_outliers(set);
  };
  const OutliersOutcome whole = train_with_outliers(rule, false);
  for (const int stop : {kPoisoned, kPoisoned + 1}) {
    const ScratchFolder folder;
    OutliersOutcome outcome;
    OutlierHistory kept;
    {
      RankTrainers ranks(laid_out("mesh.pp=2"));
      ranks.each([](Trainer& trainer) { trainer.initialise(); });
      for (int step = 0; step < stop; ++step) take(ranks, step, false, outcome);
      ranks.each([&](Trainer& trainer) { save_trainer(folder.path().string(), {}, trainer); });
      kept = ranks[0].controllers().get<Outliers>().history();
    }
    RankTrainers ranks(laid_out("mesh.dp=2"));
    ranks.each([&](Trainer& trainer) { load_trainer(open_checkpoint(folder.path().string()), trainer); });
    EXPECT_EQ(ranks[1].controllers().get<Outliers>().history(), kept);
    EXPECT_EQ(ranks[1].controllers().get<Outliers>().history().left_out, stop > kPoisoned ? 1 : 0);
    for (int step = stop; step < kSteps; ++step) take(ranks, step, false, outcome);
    EXPECT_EQ(outcome.skipped, whole.skipped);
    EXPECT_TRUE(state_of(ranks) == whole.state);
  }
}

TEST(Outliers, AreMeasuredByTheMedianOfAppliedSteps) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  Outliers outliers({.skip_norm_above = 3}, 3);
  outliers.learn(9, 1, false);
  outliers.learn(1, 1, false);
  EXPECT_EQ(outliers.limits().norm, kNone);
  outliers.learn(2, 1, false);
  EXPECT_EQ(outliers.limits().norm, 6);
  EXPECT_EQ(outliers.limits().loss, kNone);
  outliers.learn(100, 1, true);
  outliers.learn(100, 1, true);
  EXPECT_EQ(outliers.limits().norm, 6);
  EXPECT_EQ(outliers.history().in_a_row, 2);
  outliers.learn(4, 1, false);  // and 9 is forgotten
  EXPECT_EQ(outliers.history().norms, (std::vector<double>{1, 2, 4}));
  EXPECT_EQ(outliers.history().in_a_row, 0);
  EXPECT_EQ(outliers.history().left_out, 2);
  const OutlierHistory back = rolled_back_to({.norms = {1}, .left_out = 1}, outliers.history(), 4);
  EXPECT_EQ(back, (OutlierHistory{.norms = {1}, .left_out = 5, .skipped = 2, .rolled_back_to = 1}));
}

TEST(Outliers, AreRefusedWhereTheLossIsRoundedByTheLayout) {
  EXPECT_THROW(options_with_outliers({kByLoss, "train.exact_sums=true", "device.dtype=f32"}), ConfigError);
}

}  // namespace
}  // namespace heddle::train

// Updates that run ahead of the norm: whatever is tried, taken back and done again, every step and the state after
// the last are, to the bit, those of a run that waits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "heddle/train/run_config_plan.h"
#include "tests/support/tiny_models.h"
#include "tests/train/rank_trainers.h"

namespace heddle::train {
namespace {

constexpr int kSteps = 32;
constexpr double kClip = 3.5;  // which the norms of this run cross often

std::string small_run() {
  config::RunConfig c;
  c.model = test::small_model();
  c.model.num_hidden_layers = 4;
  c.model.num_nextn_predict_layers = 1;
  c.model.sequence_aux_loss_alpha = c.model.z_loss_weight = 1e-3;
  c.model.topk_bias = true;
  c.model.bias_update_rate = 1e-3;
  c.model.initializer_range = 0.2;
  c.train.global_batch = 8;
  c.train.microbatch = 1;
  c.train.sequence_length = 16;
  c.train.warmup_steps = 0;
  c.device.threads = 1;
  return config::toml_of(c, config::RunConfig());
}

struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<double>> state;
  int attempted = 0, taken_back = 0;
};

void note(Outcome& outcome, const StepResult& result) {
  ASSERT_EQ(result.step, std::ssize(outcome.losses) + 1);
  outcome.losses.push_back(result.next_token_loss());
  outcome.norms.push_back(result.gradient_norm());
  outcome.attempted += result.attempted ? 1 : 0;
  outcome.taken_back += result.taken_back ? 1 : 0;
}

// Now and then the state is wanted, as for a checkpoint.
bool is_settled_after(int step) { return step % 11 == 10; }

Outcome train_with(std::vector<std::string> set, bool always = true, double clip = kClip) {
  set.push_back(fmt::format("train.clip_norm={}", clip));
  const config::RunConfig config = config::parse_run_config(small_run(), "small.toml", set);
  TrainerOptions options = trainer_options_of(config);
  options.always_attempts = always;
  RankTrainers ranks(options);
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  Outcome outcome;
  ranks.each([&](Trainer& trainer) {
    const auto hear = [&](const std::optional<StepResult>& result) {
      if (result && trainer.ranks().leads()) note(outcome, *result);
    };
    for (int step = 0; step < kSteps; ++step) {
      hear(trainer.advance(
          random_sequences(trainer, trainer.sequences_per_step(), 11 + static_cast<uint64_t>(step))));
      if (is_settled_after(step)) hear(trainer.settle());
    }
    hear(trainer.settle());
    EXPECT_FALSE(trainer.settle().has_value());
  });
  for (int r = 0; r < ranks.size(); ++r) {
    for (const StateTensor& tensor : ranks[r].state()) {
      std::vector<double>& whole = outcome.state[tensor.name];
      whole.resize(static_cast<size_t>(tensor.elements()));
      if (!tensor.is_here()) continue;
      const StateElements elements(tensor);
      const device::TensorView& view = elements.view();
      for (const model::Extent& run : ranks[r].held_extents(tensor)) {
        for (int64_t i = 0; i < run.count; ++i) {
          whole[static_cast<size_t>(run.whole + i)] =
              view.dtype == Dtype::f64 ? view.as<double>()[run.local + i] : view.as<float>()[run.local + i];
        }
      }
    }
  }
  return outcome;
}

struct Case {
  std::string name;
  std::vector<std::string> set;
  friend std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }
};

class AheadOfNorm : public testing::TestWithParam<Case> {};

TEST_P(AheadOfNorm, GivesTheBitsOfAStepThatWaits) {
  std::vector<std::string> set = GetParam().set;
  const Outcome waits = train_with(set);
  set.emplace_back("parallel.ahead_of_norm=true");
  const Outcome ahead = train_with(set);
  EXPECT_EQ(ahead.losses, waits.losses);
  EXPECT_EQ(ahead.norms, waits.norms);
  EXPECT_TRUE(ahead.state == waits.state);
  EXPECT_EQ(waits.attempted, 0);
  EXPECT_EQ(ahead.attempted, kSteps);
  const auto above =
      std::count_if(waits.norms.begin(), waits.norms.end(), [](double norm) { return kClip / (norm + 1e-6) < 1; });
  EXPECT_EQ(ahead.taken_back, above);
  EXPECT_GE(above, kSteps / 6);
  EXPECT_LE(above, kSteps - kSteps / 6);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, AheadOfNorm,
    testing::ValuesIn(std::vector<Case>{
        {"one_rank", {}},
        {"one_rank_bf16", {"device.dtype=bf16"}},
        {"not_fused", {"device.dtype=bf16", "fusions.adamw=false"}},
        {"exact_sums", {"mesh.dp=2", "device.dtype=f32", "train.exact_sums=true"}},
        {"recompute_offload", {"mesh.pp=2", "memory.recompute=full", "memory.offload=input"}},
        {"data", {"mesh.dp=2", "device.dtype=bf16"}},
        {"pipeline_1f1b", {"mesh.pp=4"}},
        {"gpipe", {"mesh.pp=2", "parallel.schedule=gpipe"}},
        {"interleaved", {"mesh.pp=2", "parallel.schedule=interleaved"}},
        {"zb_h1", {"mesh.pp=4", "parallel.schedule=zb_h1"}},
        {"zb_v", {"mesh.pp=2", "parallel.schedule=zb_v"}},
        {"dual_pipe_v", {"mesh.pp=2", "parallel.schedule=dual_pipe_v"}},
        {"dual_pipe", {"mesh.pp=2", "parallel.schedule=dual_pipe"}},
        {"pipeline_of_data", {"mesh.pp=2", "mesh.dp=2", "parallel.schedule=zb_h1"}},
        {"experts_plain", {"mesh.dp=2", "mesh.ep=2", "parallel.exchange=plain"}},
        {"experts_rank", {"mesh.dp=2", "mesh.ep=2", "parallel.exchange=rank"}},
        {"experts_node", {"mesh.dp=2", "mesh.ep=2", "parallel.exchange=node"}},
        {"experts_merge", {"mesh.dp=2", "mesh.ep=2", "parallel.exchange=merge"}},
        {"experts_auto", {"mesh.dp=2", "mesh.ep=2", "parallel.exchange=auto"}},
        {"tensor", {"mesh.tp=2"}},
        {"context", {"mesh.cp=2"}},
        {"swap", {"memory.optimizer=swap"}},
        {"swap_bf16", {"memory.optimizer=swap", "device.dtype=bf16"}},
        {"swap_not_fused", {"memory.optimizer=swap", "device.dtype=bf16", "fusions.adamw=false"}},
        {"swap_split", {"memory.optimizer=swap", "device.dtype=bf16", "memory.master=split"}},
        {"swap_weights", {"memory.optimizer=swap", "device.dtype=bf16", "memory.weights=all"}},
        {"swap_data", {"memory.optimizer=swap", "device.dtype=bf16", "mesh.dp=2"}},
        {"swap_zb_v", {"memory.optimizer=swap", "mesh.pp=2", "parallel.schedule=zb_v"}},
        {"swap_exact", {"memory.optimizer=swap", "mesh.dp=2", "device.dtype=f32", "train.exact_sums=true"}},
        {"mapped", {"memory.optimizer=mapped"}},
        {"mapped_split", {"memory.optimizer=mapped", "device.dtype=bf16", "memory.master=split"}},
        {"mapped_weights_zb_h1",
         {"memory.optimizer=mapped", "memory.weights=all", "mesh.pp=2", "parallel.schedule=zb_h1"}},
        {"host", {"memory.optimizer=host"}},
        {"host_bf16", {"memory.optimizer=host", "device.dtype=bf16"}},
        {"host_not_fused", {"memory.optimizer=host", "device.dtype=bf16", "fusions.adamw=false"}},
        {"host_split", {"memory.optimizer=host", "device.dtype=bf16", "memory.master=split"}},
        {"host_weights", {"memory.optimizer=host", "device.dtype=bf16", "memory.weights=all"}},
        {"host_pipeline_of_data", {"memory.optimizer=host", "mesh.pp=2", "mesh.dp=2", "parallel.schedule=zb_h1"}},
        {"host_exact", {"memory.optimizer=host", "mesh.dp=2", "device.dtype=f32", "train.exact_sums=true"}}}),
    [](const auto& info) { return info.param.name; });

// A limit that is seldom crossed is tried for, one that every norm crosses is not.
TEST(AheadOfNormTrials, FollowRecentNorms) {
  const std::vector<std::string> set{"parallel.ahead_of_norm=true"};
  const Outcome never = train_with(set, false, 1e-4), always = train_with(set, false, 1e4);
  EXPECT_EQ(never.attempted, 0);
  EXPECT_GE(always.attempted, kSteps - 5);
  EXPECT_EQ(always.taken_back, 0);
}

TEST(AheadOfNormTrials, AskForMoreAfterEachThatWasTakenBack) {
  Attempts attempts(1.0);
  EXPECT_FALSE(attempts.may());
  attempts.learn(0.5, false, false);
  attempts.learn(0.5, false, false);
  EXPECT_TRUE(attempts.may());
  attempts.learn(1.5, true, true);
  for (int i = 0; i < 3; ++i) attempts.learn(0.5, false, false);
  EXPECT_FALSE(attempts.may());
  attempts.learn(0.5, false, false);
  EXPECT_TRUE(attempts.may());
}

// Nothing is left of a step whose gradient isn't finite, although its update had run already.
TEST(AheadOfNormTrials, LeaveStateAloneWhereNothingFiniteComes) {
  for (const auto& [schedule, home] : std::vector<std::pair<std::string, std::string>>{
           {"1f1b", "device"}, {"zb_v", "device"}, {"1f1b", "swap"}, {"zb_v", "mapped"}, {"1f1b", "host"}}) {
    const std::vector<std::string> set{"mesh.pp=2", "parallel.schedule=" + schedule, "memory.optimizer=" + home,
                                       "parallel.ahead_of_norm=true", "train.clip_norm=1000"};
    TrainerOptions options = trainer_options_of(config::parse_run_config(small_run(), "small.toml", set));
    options.always_attempts = true;
    RankTrainers ranks(options);
    const auto states = [&] {
      std::vector<std::vector<float>> all;
      for (int r = 0; r < ranks.size(); ++r) {
        for (const StateTensor& tensor : ranks[r].state()) {
          if (!tensor.view || tensor.name.find("bias") != std::string::npos)
            continue;  // which loads move, not gradients
          const auto* first = tensor.view.as<const float>();
          all.emplace_back(first, first + tensor.view.elements());
        }
      }
      return all;
    };
    std::vector<std::vector<float>> before;
    ranks.each([](Trainer& trainer) {
      trainer.initialise();
      (void)trainer.step(random_sequences(trainer, trainer.sequences_per_step(), 1));
      // Too large for a norm, not for a loss.
      for (const StateTensor& tensor : trainer.state()) {
        if (!tensor.view || tensor.name.find("lm_head") == std::string::npos || tensor.name.starts_with("m.") ||
            tensor.name.starts_with("v.")) {
          continue;
        }
        for (int64_t i = 0; i < tensor.view.elements(); ++i) tensor.view.as<float>()[i] *= 1e30f;
      }
      trainer.weights_changed();
    });
    before = states();
    std::string said;
    try {
      ranks.each([](Trainer& trainer) {
        EXPECT_FALSE(trainer.advance(random_sequences(trainer, trainer.sequences_per_step(), 2)).has_value());
        (void)trainer.advance(random_sequences(trainer, trainer.sequences_per_step(), 3));
      });
    } catch (const Error& error) {
      said = error.what();
    }
    EXPECT_NE(said.find("step 2: "), std::string::npos) << said;
    EXPECT_TRUE(states() == before) << schedule << " " << home;
  }
}

}  // namespace
}  // namespace heddle::train

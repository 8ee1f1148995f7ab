// QK-clip: steps as PyTorch makes them, every layout as one rank, the bits of a resumed run, and logits that stay
// low.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "heddle/passes/recompute.h"
#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_options.h"

namespace heddle::train {
namespace {

struct Steps {
  std::string name;
  std::vector<double> losses, largest;
  std::map<std::string, double> sums;
};
const std::vector<Steps> kClippedSteps{
#include "tests/fixtures/qk_clip/steps.inc"
};

// The models and the numbers of tools/make_qk_clip_fixture.py.
TrainerOptions fixture_options(const std::string& name) {
  TrainerOptions o = small_options({}, 1);
  model::ModelConfig& c = o.model;
  c = model::ModelConfig();
  c.vocab_size = 16;
  c.hidden_size = 8;
  c.num_hidden_layers = c.first_k_dense_replace = 2;
  c.intermediate_size = 12;
  c.rms_norm_eps = 1e-6;
  c.rope_theta = 10000;
  if (name.starts_with("latent")) {
    c.num_attention_heads = 2;
    c.q_lora_rank = c.kv_lora_rank = c.qk_nope_head_dim = c.v_head_dim = 4;
    c.qk_rope_head_dim = 2;
  } else {
    c.attention = model::ModelConfig::Attention::grouped;
    c.num_attention_heads = name == "shared_keys_muon" ? 4 : 2;
    c.num_key_value_heads = 2;
    c.head_dim = 4;
    c.qk_norm = c.rope_interleave = false;
    c.attention_bias = model::AttentionBias::qkv;
  }
  o.plan.microbatches = 2;
  o.plan.sequence_length = 12;
  o.plan.update.weight_decay = 0.1;
  o.plan.update.qk_clip = 3;
  if (name.ends_with("muon")) o.plan.update.rule = passes::OptimizerRule::muon;
  o.learning_rate.peak = 0.02;
  return o;
}

double start(const std::string& name, int64_t i) {
  if (name.find("norm") != std::string::npos) return 1;
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  const double size = has("q_") || has("k_proj") || has("kv_b") ? 1.2 : 0.4;
  int sum = 0;
  for (const char letter : name) sum += letter;
  return size * std::sin(0.37 * static_cast<double>(i + 1) * (sum % 11 + 1));
}

Sequences fixture_tokens(int64_t step) {
  Sequences sequences;
  for (int64_t b = 0; b < 2; ++b) {
    auto& row = sequences.tokens.emplace_back();
    for (int64_t t = 0; t < 13; ++t)
      row.push_back(static_cast<int32_t>((7 * t * t + 3 * t * b + step * (t + 1)) % 16));
  }
  return sequences;
}

TEST(QkClip, StepsAreThoseOfPyTorch) {
  for (const Steps& steps : kClippedSteps) {
    Trainer trainer(fixture_options(steps.name));
    trainer.initialise();
    for (const StateTensor& tensor : trainer.state()) {
      if (!tensor.is_master) continue;
      for (int64_t i = 0; i < tensor.elements(); ++i)
        tensor.view.as<double>()[i] = start(tensor.parameter->name, i);
    }
    trainer.weights_changed();
    for (size_t step = 0; step < steps.losses.size(); ++step) {
      const StepResult result = trainer.step(fixture_tokens(static_cast<int64_t>(step)));
      EXPECT_NEAR(result.next_token_loss(), steps.losses[step], 1e-10) << steps.name << ", step " << step;
      if (steps.largest[step] > 3) {
        EXPECT_NEAR(result.max_logit, steps.largest[step], 1e-9) << steps.name << ", step " << step;
      } else {
        EXPECT_LE(result.max_logit, 3) << steps.name << ", step " << step;
        EXPECT_GE(result.max_logit, steps.largest[step]) << steps.name << ", step " << step;
      }
    }
    size_t compared = 0;
    for (const StateTensor& tensor : trainer.state()) {
      if (!tensor.is_master) continue;
      double sum = 0;
      for (int64_t i = 0; i < tensor.elements(); ++i) sum += std::abs(tensor.view.as<double>()[i]);
      const double expected = steps.sums.at(tensor.parameter->name);
      EXPECT_NEAR(sum, expected, 1e-10 * expected) << steps.name << ", " << tensor.name;
      ++compared;
    }
    EXPECT_EQ(compared, steps.sums.size()) << steps.name;
  }
}

struct Case {
  const char* name;
  plan::Degrees mesh;
  const char* schedule = "1f1b";
  model::Context context = model::Context::gather;
  passes::Shard shard = passes::Shard::state;
  int shard_ranks = 0;
  bool muon = false, grouped = false, recompute = false;
  friend std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }
};

using model::Context;
using passes::Shard;
const std::vector<Case> kCases{
    {"tp2", {.tp = 2}},
    {"dp4", {.dp = 4}},
    {"dp4_muon", {.dp = 4}, "1f1b", Context::gather, Shard::state, 0, true},
    {"dp4_gradients", {.dp = 4}, "1f1b", Context::gather, Shard::gradients},
    {"dp4_weights", {.dp = 4}, "1f1b", Context::gather, Shard::weights},
    {"dp4_weights_by_two", {.dp = 4}, "1f1b", Context::gather, Shard::weights, 2},
    {"dp4_weights_by_two_grouped", {.dp = 4}, "1f1b", Context::gather, Shard::weights, 2, false, true},
    {"tp2_dp2_grouped_muon", {.tp = 2, .dp = 2}, "1f1b", Context::gather, Shard::state, 0, true, true},
    {"cp2_gather", {.cp = 2, .dp = 2}},
    {"cp2_ring", {.cp = 2}, "1f1b", Context::ring, Shard::state, 0, false, false, true},
    {"cp2_ring_grouped", {.cp = 2}, "1f1b", Context::ring, Shard::state, 0, false, true},
    {"cp2_ulysses", {.cp = 2, .dp = 2}, "1f1b", Context::ulysses},
    {"tp2_cp2_ulysses_grouped", {.tp = 2, .cp = 2}, "1f1b", Context::ulysses, Shard::state, 0, false, true},
    {"cp4_hybrid", {.cp = 4}, "1f1b", Context::hybrid},
    {"cp4_hybrid_grouped", {.cp = 4}, "1f1b", Context::hybrid, Shard::state, 0, false, true},
    {"cp4_double_ring_grouped", {.cp = 4}, "1f1b", Context::double_ring, Shard::state, 0, false, true},
    {"pp2_zb", {.dp = 2, .pp = 2}, "zb_h1"},
    {"pp2_dual_pipe", {.pp = 2}, "dual_pipe"},
    {"ep2_recompute", {.dp = 2, .ep = 2}, "1f1b", Context::gather, Shard::state, 0, false, false, true},
};

TrainerOptions options_for(const Case& c) {
  TrainerOptions o = small_options(c.mesh, 1);
  o.model.num_attention_heads = 4;
  o.model.initializer_range = 0.3;
  if (c.grouped) {
    o.model.attention = model::ModelConfig::Attention::grouped;
    o.model.num_key_value_heads = 4;
    o.model.head_dim = 6;
    o.model.qk_norm = o.model.rope_interleave = false;
    o.model.attention_bias = model::AttentionBias::qkv;
  }
  o.plan.parallel.schedule = c.schedule;
  o.plan.parallel.context = c.context;
  o.plan.parallel.shard = c.shard;
  o.plan.parallel.shard_ranks = c.shard_ranks;
  if (c.muon) o.plan.update.rule = passes::OptimizerRule::muon;
  if (c.recompute) o.plan.memory.recompute = passes::recompute_groups("layer");
  o.plan.update.qk_clip = 0.5;
  return o;
}

struct Trained {
  std::vector<double> numbers;               // losses, norms and largest logits of each step
  std::map<std::string, std::string> state;  // by tensor
};

std::map<std::string, std::string> saved(RankTrainers& ranks) {
  const ScratchFolder folder;
  std::vector<std::string> paths(static_cast<size_t>(ranks.size()));
  ranks.each([&](Trainer& trainer) {
    paths[static_cast<size_t>(trainer.ranks().rank())] = save_trainer(folder / "state", {}, trainer);
  });
  std::map<std::string, std::string> by_name;
  const Checkpoint checkpoint(paths[0]);
  for (const SavedTensor& tensor : checkpoint.tensors()) {
    std::string& bytes = by_name[tensor.name];
    for (const std::span<const uint8_t> piece : tensor.pieces()) bytes.append(piece.begin(), piece.end());
  }
  return by_name;
}

Trained train(const TrainerOptions& options, uint64_t steps = 3) {
  RankTrainers ranks(options);
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  Trained run;
  for (uint64_t step = 0; step < steps; ++step) {
    const StepResult result = ranks.step(random_sequences(ranks[0], kSequences, step));
    run.numbers.insert(run.numbers.end(), {result.next_token_loss(), result.gradient_norm(), result.max_logit});
  }
  run.state = saved(ranks);
  return run;
}

class QkClipLayouts : public testing::TestWithParam<Case> {};

TEST_P(QkClipLayouts, TrainAsOneRank) {
  Case alone{"one", {}};
  alone.muon = GetParam().muon;
  alone.grouped = GetParam().grouped;
  const Trained one = train(options_for(alone)), many = train(options_for(GetParam()));
  for (size_t i = 0; i < one.numbers.size(); ++i)
    EXPECT_NEAR(one.numbers[i], many.numbers[i], 1e-12 * std::abs(one.numbers[i])) << i;
  TrainerOptions unclipped = options_for(alone);
  unclipped.plan.update.qk_clip = 0;
  EXPECT_GT(one.numbers[2], 0.5);                                           // the first step exceeds
  EXPECT_GT(std::abs(train(unclipped).numbers[3] - one.numbers[3]), 1e-4);  // and the second shows it
}

INSTANTIATE_TEST_SUITE_P(Cases, QkClipLayouts, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Under exact sums dp, ep, pp and the cuts of state give the same bits, with masters whole or split.
TEST(QkClipBits, AreThoseOfOneRankUnderExactSums) {
  for (const bool split : {false, true}) {
    std::map<std::string, std::string> one;
    for (const Case& c :
         {Case{"one", {}}, Case{"dp4", {.dp = 4}}, Case{"ep2", {.dp = 2, .ep = 2}}, Case{"pp2", {.dp = 2, .pp = 2}},
          Case{"weights", {.dp = 4}, "1f1b", Context::gather, Shard::weights, 2}}) {
      TrainerOptions o = options_for(c);
      o.plan.dtype = Dtype::bf16;
      o.plan.exact_sums = true;
      if (split) o.plan.memory.master = plan::MasterForm::split;
      const Trained run = train(o);
      if (one.empty()) one = run.state;
      EXPECT_EQ(one == run.state, true) << c.name << (split ? ", split" : "");
    }
  }
}

// Homes of the state change no bit: masters of clipped heads are scaled before they leave again.
TEST(QkClipBits, WithStateOnTheHostAreThoseOfStateOnTheDevice) {
  using plan::StateResidency;
  for (const Case& c :
       {Case{"one", {}}, Case{"dp2_grouped", {.dp = 2}, "1f1b", Context::gather, Shard::state, 0, false, true},
        Case{"dp2_muon", {.dp = 2}, "1f1b", Context::gather, Shard::state, 0, true},
        Case{"tp2_dp2", {.tp = 2, .dp = 2}},
        Case{"dp4_weights", {.dp = 4}, "1f1b", Context::gather, Shard::weights}}) {
    for (const plan::MasterForm form : {plan::MasterForm::full, plan::MasterForm::split}) {
      TrainerOptions o = options_for(c);
      o.plan.dtype = Dtype::bf16;
      o.plan.memory.master = form;
      const Trained device = train(o);
      EXPECT_GT(device.numbers[2], 0.5) << c.name;  // the first step exceeds
      for (const StateResidency home : {StateResidency::swap, StateResidency::mapped, StateResidency::host}) {
        o.plan.memory.optimizer = home;
        const std::string which = fmt::format("{} {} {}", c.name, word_of(form), word_of(home));
        size_t away = 0;
        const plan::Lowered lowered = plan::lower(o.model, o.plan);
        for (const ir::Value& value : lowered.program.listings.at(0).values)
          away += value.role == ir::Role::optimizer && value.space == ir::Space::host;
        EXPECT_GT(away, 0u) << which;
        const Trained run = train(o);
        EXPECT_EQ(device.numbers == run.numbers, true) << which;
        EXPECT_EQ(device.state == run.state, true) << which;
      }
    }
  }
}

TEST(QkClipBits, OfAResumedRunAreThoseOfOneThatDidNotStop) {
  TrainerOptions o = options_for({"dp2", {.dp = 2}});
  o.plan.dtype = Dtype::bf16;
  const ScratchFolder folder;
  RankTrainers through(o), resumed(o);
  std::vector<std::string> paths(2);
  through.each([](Trainer& trainer) { trainer.initialise(); });
  for (uint64_t step = 0; step < 4; ++step) {
    if (step == 2)
      through.each([&](Trainer& trainer) {
        paths[static_cast<size_t>(trainer.ranks().rank())] = save_trainer(folder / "at", {}, trainer);
      });
    through.step(random_sequences(through[0], kSequences, step));
  }
  resumed.each([&](Trainer& trainer) { load_trainer(Checkpoint(paths[0]), trainer); });
  for (uint64_t step = 2; step < 4; ++step) resumed.step(random_sequences(resumed[0], kSequences, step));
  EXPECT_EQ(saved(through) == saved(resumed), true);
}

// A skipped step leaves the weights of heads that exceed.
TEST(QkClip, ASkippedStepScalesNothing) {
  TrainerOptions o = options_for({"one", {}});
  o.plan.update.skip_norm_above = 1e-9;
  o.outlier_window = 1;
  RankTrainers ranks(o);
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  ranks.step(random_sequences(ranks[0], kSequences, 0));
  const auto masters = [&] {
    std::map<std::string, std::string> kept = saved(ranks);
    std::erase_if(kept, [](const auto& at) { return !at.first.starts_with("model."); });
    return kept;
  };
  const auto before = masters();
  EXPECT_TRUE(ranks.step(random_sequences(ranks[0], kSequences, 1)).is_skipped());
  EXPECT_EQ(before == masters(), true);
}

// With a rate that lets logits grow, they stay near the limit.
TEST(QkClip, LogitsThatWouldGrowStayNearTheLimit) {
  const auto largest_of = [](double limit) {
    TrainerOptions o = options_for({"one", {}});
    o.plan.update.rule = passes::OptimizerRule::muon;
    o.plan.update.qk_clip = limit;
    o.learning_rate.peak = 0.1;
    RankTrainers ranks(o);
    ranks.each([](Trainer& trainer) { trainer.initialise(); });
    double largest = 0;
    for (uint64_t step = 0; step < 30; ++step) {
      const double now = ranks.step(random_sequences(ranks[0], kSequences, step)).max_logit;
      if (step >= 10) largest = std::max(largest, now);
    }
    return largest;
  };
  EXPECT_GT(largest_of(1e6), 40);  // of rows' log-sum-exps, which are at most ln 16 above
  EXPECT_LT(largest_of(10), 20);
}

}  // namespace
}  // namespace heddle::train

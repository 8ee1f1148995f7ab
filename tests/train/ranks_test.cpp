// A small model trained on ranks in many layouts against the same on one rank: losses, norms, load, held-out loss
// and predictions; what goes wrong on one rank is told by all; a checkpoint of one layout goes on in another.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "heddle/train/evaluate.h"
#include "heddle/train/logits.h"
#include "heddle/train/step/step_work.h"
#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_models.h"
#include "tests/train/rank_trainers.h"

namespace heddle::train {
namespace {

constexpr int64_t kBatch = 8;  // sequences

TrainerOptions options_for_ranks(const plan::Degrees& mesh, const std::string& backend, Dtype dtype,
                                 const std::string& context = "gather", const std::string& schedule = "1f1b") {
  TrainerOptions o;
  o.model = test::small_model();
  o.model.num_attention_heads = 4;
  o.model.sequence_aux_loss_alpha = 1e-3;
  o.model.z_loss_weight = 1e-3;
  o.model.initializer_range = 0.1;
  o.plan.mesh = mesh;
  o.plan.parallel.context = from_word<model::Context>(context);
  o.plan.parallel.schedule = schedule;
  o.plan.sequences = 2;
  o.plan.microbatches = static_cast<int>(kBatch / (o.plan.sequences * mesh.dp));
  o.plan.sequence_length = 16;
  o.plan.dtype = dtype;
  o.backend = backend;
  o.memory_bytes = 32 << 20;
  o.length = {100};
  o.learning_rate = {.shape = LearningRate::Shape::constant, .peak = 1e-3};
  o.seed = 5;
  return o;
}

struct Layout {
  const char* name;
  plan::Degrees mesh;
  const char* context = "gather";
  const char* schedule = "1f1b";
  friend std::ostream& operator<<(std::ostream& out, const Layout& layout) { return out << layout.name; }
};

const std::vector<Layout> kLayouts{
    {"dp2", {.dp = 2}},
    {"tp2", {.tp = 2}},
    {"pp2", {.pp = 2}},
    {"cp2", {.cp = 2}, "ring"},
    {"dp2_ep2", {.dp = 2, .ep = 2}},
    {"tp2_dp2_pp2_ep2", {.tp = 2, .dp = 2, .pp = 2, .ep = 2}},
    {"pp2_dual_pipe_v", {.pp = 2}, "gather", "dual_pipe_v"},
    {"dp2_pp3_ep2_zb_1p", {.dp = 2, .pp = 3, .ep = 2}, "gather", "zb_1p"},
    {"tp2_pp2_interleaved", {.tp = 2, .pp = 2}, "gather", "interleaved_fused"},
    {"pp2_dual_pipe", {.pp = 2}, "gather", "dual_pipe"},
    {"dp4_etp2", {.dp = 4, .etp = 2}},
};

struct RanksOutcome {
  std::vector<StepResult> steps;
  double held_out = 0;
  std::vector<float> logits;
};

RanksOutcome train_two_steps(const TrainerOptions& options) {
  RankTrainers ranks(options);
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  RanksOutcome outcome;
  for (uint64_t step = 0; step < 2; ++step)
    outcome.steps.push_back(ranks.step(random_sequences(ranks[0], kBatch, step)));
  ranks.each([&](Trainer& trainer) {
    const double loss = evaluate(trainer, random_sequences(trainer, 5, 99));  // the last round is not full
    const std::vector<int32_t> prompt{3, 1, 4, 1, 5};
    std::vector<float> logits = next_logits(trainer, prompt);
    if (!trainer.ranks().leads()) return;
    outcome.held_out = loss;
    outcome.logits = std::move(logits);
  });
  return outcome;
}

void expect_near(const RanksOutcome& many, const RanksOutcome& one, double tolerance) {
  const auto near = [&](double a, double b, const char* what) {
    EXPECT_NEAR(a, b, tolerance * std::max(1e-3, std::abs(b))) << what;
  };
  for (size_t i = 0; i < one.steps.size(); ++i) {
    const StepResult &a = many.steps[i], &b = one.steps[i];
    near(a.next_token_loss(), b.next_token_loss(), "loss");
    near(a.sequence_aux_loss(), b.sequence_aux_loss(), "auxiliary loss");
    near(a.z_loss(), b.z_loss(), "z-loss");
    near(a.gradient_norm(), b.gradient_norm(), "gradient norm");
    const std::vector<StepResult::Load> loads = a.loads(), expected = b.loads();
    ASSERT_EQ(loads.size(), expected.size());
    for (size_t l = 0; l < loads.size(); ++l) EXPECT_EQ(loads[l].layer, expected[l].layer);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.flops, b.flops);
    double rows = 0;
    for (const double load : loads.at(0).rows_E) rows += load;
    EXPECT_EQ(rows, static_cast<double>(kBatch * 16 * 2));
  }
  near(many.held_out, one.held_out, "held-out loss");
  ASSERT_EQ(many.logits.size(), one.logits.size());
  double difference = 0, norm = 0;
  for (size_t v = 0; v < one.logits.size(); ++v) {
    difference += std::pow(many.logits[v] - one.logits[v], 2);
    norm += std::pow(one.logits[v], 2);
  }
  EXPECT_LE(std::sqrt(difference / norm), tolerance) << "logits";
}

class Ranks : public testing::TestWithParam<Layout> {
 protected:
  void expect_as_one_rank(const std::string& backend, Dtype dtype, double tolerance,
                          passes::OptimizerRule rule = passes::OptimizerRule::adamw) {
    TrainerOptions alone = options_for_ranks({}, backend, dtype);
    alone.plan.update.rule = rule;
    const RanksOutcome one = train_two_steps(alone);
    EXPECT_NEAR(one.steps[0].next_token_loss(), std::log(64.0), 0.5);
    const Layout& l = GetParam();
    TrainerOptions many = options_for_ranks(l.mesh, backend, dtype, l.context, l.schedule);
    many.plan.update.rule = rule;
    expect_near(train_two_steps(many), one, tolerance);
  }
};

// The second step shows what the optimizer made of the gradients.
TEST_P(Ranks, TrainAsOneInDoubles) { expect_as_one_rank("reference", Dtype::f64, 1e-10); }
TEST_P(Ranks, TrainAsOneInFloats) { expect_as_one_rank("reference", Dtype::f32, 1e-5); }
// Sums of parts are rounded to 8 bits where one rank rounds the whole: a relative 2^-9 at each, more where they
// cancel, and a token whose scores are near may choose another expert.
TEST_P(Ranks, TrainByMuonAsOneInDoubles) {
  expect_as_one_rank("reference", Dtype::f64, 1e-10, passes::OptimizerRule::muon);
}
TEST_P(Ranks, TrainByMuonAsOneInFloats) {
  expect_as_one_rank("host", Dtype::f32, 1e-4, passes::OptimizerRule::muon);
}
TEST_P(Ranks, TrainNearlyAsOneInBf16) { expect_as_one_rank("host", Dtype::bf16, 0.05); }

INSTANTIATE_TEST_SUITE_P(Layouts, Ranks, testing::ValuesIn(kLayouts),
                         [](const auto& info) { return std::string(info.param.name); });

// What rank 0 sends in a step on the streams of these groups.
double sent(const plan::Degrees& mesh, const std::vector<std::string>& groups, double* parameters = nullptr) {
  RankTrainers ranks(options_for_ranks(mesh, "reference", Dtype::f32));
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  constexpr int kSteps = 2;
  for (uint64_t step = 0; step < kSteps; ++step) ranks.step(random_sequences(ranks[0], kBatch, step));
  const std::map<std::string, comm::Traffic> traffic = ranks[0].traffic();
  double bytes = 0;
  for (const std::string& group : groups) {
    const auto at = traffic.find("comm." + group);
    if (at != traffic.end()) bytes += static_cast<double>(at->second.within_node_bytes);
  }
  if (parameters != nullptr) *parameters = static_cast<double>(ranks[0].work().parameters.total);
  return bytes / kSteps;
}

// The formulas of docs/features/data_parallel.md and tensor_parallel.md, but for counts, losses and padding.
TEST(RankTraffic, OfDataRanksIsOneRoundOfGradientsAndOneOfWeights) {
  for (const int dp : {2, 4}) {
    double parameters = 0;
    const double bytes = sent({.dp = dp}, {"stage", "dense", "edp"}, &parameters);
    EXPECT_NEAR(bytes, (4 + 4) * parameters * (dp - 1) / dp, 0.02 * bytes) << dp;
  }
}

TEST(RankTraffic, OfTensorRanksIsFourPassesALayer) {
  const model::ModelConfig c = options_for_ranks({}, "reference", Dtype::f32).model;
  for (const int tp : {2, 4}) {
    const double rows = 2 * 16, hidden = static_cast<double>(c.hidden_size);
    const double layer = 2 * hidden + static_cast<double>(c.kv_lora_rank + c.qk_rope_head_dim) + 2 * hidden;
    const double forward =
        4 * rows / tp * (tp - 1) * (static_cast<double>(c.num_hidden_layers) * layer + 2 * hidden);
    const double bytes = sent({.tp = tp}, {"tp"});
    EXPECT_NEAR(bytes, static_cast<double>(kBatch) / 2 * 2 * forward, 0.02 * bytes) << tp;
  }
}

// Three steps in one layout, saved, loaded in another and saved there: the same state. With exact sums the other
// goes on with the same bits as the first.
class RankCheckpoint : public testing::TestWithParam<std::tuple<Layout, Layout>> {};

std::string saved_ranks(const std::string& folder, RankTrainers& ranks) {
  std::vector<std::string> paths(static_cast<size_t>(ranks.size()));
  ranks.each([&](Trainer& trainer) {
    paths[static_cast<size_t>(trainer.ranks().rank())] = save_trainer(folder, {}, trainer);
  });
  for (const std::string& path : paths) EXPECT_EQ(path, paths[0]);
  const Checkpoint checkpoint(paths[0]);
  std::map<std::string, std::string> by_name;  // however many shards they lie in
  for (const SavedTensor& tensor : checkpoint.tensors()) {
    std::string& bytes = by_name[tensor.name];
    for (const std::span<const uint8_t> piece : tensor.pieces()) bytes.append(piece.begin(), piece.end());
  }
  std::string all;
  for (const auto& [name, bytes] : by_name) all += name + bytes;
  return all;
}

TEST_P(RankCheckpoint, GoesOnInAnotherLayout) {
  const auto& [before, after] = GetParam();
  const bool same_sums = before.mesh.tp * before.mesh.cp * after.mesh.tp * after.mesh.cp == 1;
  const auto options = [&](const Layout& layout) {
    TrainerOptions o = options_for_ranks(layout.mesh, "host", Dtype::bf16, layout.context, layout.schedule);
    o.plan.exact_sums = same_sums;
    return o;
  };
  const ScratchFolder folder;
  RankTrainers first(options(before));
  first.each([](Trainer& trainer) { trainer.initialise(); });
  for (uint64_t step = 0; step < 3; ++step) first.step(random_sequences(first[0], kBatch, step));
  const std::string state = saved_ranks(folder / "first", first);

  RankTrainers second(options(after));
  second.each([&](Trainer& trainer) { load_trainer(open_checkpoint(folder / "first"), trainer); });
  EXPECT_EQ(second[0].steps_done(), 3);
  EXPECT_TRUE(saved_ranks(folder / "second", second) == state) << "another state";

  const StepResult a = first.step(random_sequences(first[0], kBatch, 3));
  const StepResult b = second.step(random_sequences(second[0], kBatch, 3));
  EXPECT_NEAR(a.next_token_loss(), b.next_token_loss(), 0.01 * a.next_token_loss());
  if (!same_sums) return;
  EXPECT_TRUE(saved_ranks(folder / "first", first) == saved_ranks(folder / "second", second)) << "the next step";
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, RankCheckpoint,
    testing::Values(std::tuple{Layout{"one", {}}, kLayouts[5]}, std::tuple{kLayouts[5], kLayouts[3]},
                    std::tuple{kLayouts[3], Layout{"one", {}}}, std::tuple{kLayouts[0], kLayouts[4]},
                    std::tuple{kLayouts[4], kLayouts[2]}, std::tuple{kLayouts[1], kLayouts[0]},
                    std::tuple{kLayouts[2], kLayouts[6]}, std::tuple{kLayouts[6], kLayouts[7]},
                    std::tuple{kLayouts[7], kLayouts[9]}, std::tuple{kLayouts[9], Layout{"one", {}}},
                    std::tuple{kLayouts[8], kLayouts[7]}),
    [](const auto& info) {
      return fmt::format("{}_to_{}", std::get<0>(info.param).name, std::get<1>(info.param).name);
    });

TEST(RankErrors, EveryRankNamesTheFirstValueThatIsNotFinite) {
  // The rank of expert 0 has it for itself; its product is the first that shows what stands in it.
  RankTrainers ranks(options_for_ranks({.tp = 2, .pp = 2, .ep = 2}, "reference", Dtype::f32));
  ranks.each([](Trainer& trainer) {
    trainer.initialise();
    for (const StateTensor& tensor : trainer.state()) {
      if (tensor.name != "model.layers.1.mlp.experts.down_proj.weight" || tensor.view.data == nullptr) continue;
      if (trainer.held_extents(tensor).at(0).whole == 0) tensor.view.as<float>()[0] = INFINITY;
    }
    trainer.weights_changed();
  });
  std::vector<std::string> told(static_cast<size_t>(ranks.size()));
  ranks.each([&](Trainer& trainer) {
    try {
      trainer.step(random_sequences(trainer, kBatch, 1));
    } catch (const Error& error) {
      told[static_cast<size_t>(trainer.ranks().rank())] = error.what();
    }
  });
  for (const std::string& what : told) {
    EXPECT_EQ(what, told[0]);
    EXPECT_NE(what.find("grouped_linear in layer 1 (phase F, microbatch 0, rank 2)"), std::string::npos) << what;
  }
}

// The neighbour never comes: the first rank waits for the gradient of its first microbatch.
TEST(RankErrors, ARankThatWaitedSaysWhereItStood) {
  RankTrainers ranks(options_for_ranks({.pp = 2}, "reference", Dtype::f32));
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  EXPECT_EQ(ranks[0].executor().stood_at(), "");
  EXPECT_THROW(ranks.each([](Trainer& trainer) {
    if (trainer.ranks().rank() == 1) internal_error("gone");
    trainer.step(random_sequences(trainer, kBatch, 0));
  }),
               Error);
  const std::string stood = ranks[0].executor().stood_at();
  EXPECT_NE(stood.find(">"), std::string::npos) << stood;
}

// Four ranks that share the experts, of which each host has every second one.
TEST(RankErrors, ExactSumsAreRefusedOnHostsThatCannotHoldThem) {
  comm::ThreadWorlds thread_worlds(std::vector<int>{0, 1, 0, 1});
  const auto world = thread_worlds.world(0);
  TrainerOptions options = options_for_ranks({.dp = 4, .ep = 4}, "reference", Dtype::f32);
  options.plan.exact_sums = true;
  EXPECT_NO_THROW(Trainer(options, world.get())) << "a token has two experts, and two rows have one sum";
  options.model.num_experts_per_tok = 3;
  try {
    Trainer(options, thread_worlds.world(1).get());
    FAIL() << "another sum than one rank's";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("hosts 0, 1, 0, 1"), std::string::npos) << error.what();
  }
}

TEST(RankErrors, AWorldOfAnotherSizeIsRefused) {
  comm::ThreadWorlds thread_worlds(3);
  const auto world = thread_worlds.world(0);
  try {
    Trainer(options_for_ranks({.dp = 2}, "reference", Dtype::f32), world.get());
    FAIL() << "3 ranks for a mesh of 2";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("needs 2 ranks, 3 are running"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace heddle::train

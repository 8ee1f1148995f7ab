// Training with gradients and weights that are cut among the ranks that hold copies of them: as one rank in fp64,
// with the bits of cut state under exact sums, from and to checkpoints of other layouts.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "heddle/passes/host/residency_words.h"
#include "heddle/train/evaluate.h"
#include "heddle/train/logits.h"
#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_options.h"

namespace heddle::train {
namespace {

using passes::Shard;

struct ShardingCase {
  const char* name;
  plan::Degrees mesh;
  Shard shard = Shard::weights;
  int shard_ranks = 0;
  const char* schedule = "1f1b";
  bool muon = false, on_host = false;
  friend std::ostream& operator<<(std::ostream& out, const ShardingCase& c) { return out << c.name; }
};

const std::vector<ShardingCase> kCasesSharding{
    {"dp2_gradients", {.dp = 2}, Shard::gradients},
    {"dp2_weights", {.dp = 2}},
    {"dp4_by_two", {.dp = 4}, Shard::weights, 2},
    {"dp4_gradients_by_two", {.dp = 4}, Shard::gradients, 2},
    {"dp4_ep2_by_two_muon", {.dp = 4, .ep = 2}, Shard::weights, 2, "1f1b", true},
    {"tp2_dp2_ep2", {.tp = 2, .dp = 2, .ep = 2}},
    {"cp2_pp2_zb_h1", {.cp = 2, .pp = 2}, Shard::weights, 0, "zb_h1"},
    {"dp2_pp2_interleaved", {.dp = 2, .pp = 2}, Shard::weights, 0, "interleaved"},
    {"dp2_pp2_dual_pipe_v", {.dp = 2, .pp = 2}, Shard::weights, 0, "dual_pipe_v"},
    {"dp2_etp2_muon", {.dp = 2, .etp = 2}, Shard::weights, 0, "1f1b", true},
    {"dp2_on_the_host", {.dp = 2}, Shard::weights, 0, "1f1b", false, true},
};

TrainerOptions options_for_sharding(const ShardingCase& c) {
  TrainerOptions o = small_options(c.mesh, 1);
  o.model.num_attention_heads = 4;
  o.model.initializer_range = 0.1;
  o.plan.parallel.schedule = c.schedule;
  o.plan.parallel.shard = c.shard;
  o.plan.parallel.shard_ranks = c.shard_ranks;
  if (c.muon) o.plan.update.rule = passes::OptimizerRule::muon;
  if (c.on_host) {
    o.plan.memory.weights = passes::residency_groups("all");
    o.plan.memory.gradients = passes::residency_groups("all");
    o.plan.memory.optimizer = plan::StateResidency::swap;
  }
  return o;
}

std::vector<double> train_two_steps_sharding(const TrainerOptions& options) {
  RankTrainers ranks(options);
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  std::vector<double> all;
  for (uint64_t step = 0; step < 2; ++step) {
    const StepResult result = ranks.step(random_sequences(ranks[0], kSequences, step));
    all.insert(all.end(), {result.next_token_loss(), result.gradient_norm()});
  }
  ranks.each([&](Trainer& trainer) {
    const double loss = evaluate(trainer, random_sequences(trainer, 5, 99));
    const std::vector<int32_t> prompt{3, 1, 4, 1, 5};
    const std::vector<float> logits = next_logits(trainer, prompt);
    if (!trainer.ranks().leads()) return;
    all.push_back(loss);
    all.insert(all.end(), logits.begin(), logits.end());
  });
  return all;
}

class Sharding : public testing::TestWithParam<ShardingCase> {};

// The second step, evaluation and logits show what the optimizer made of the gradients.
TEST_P(Sharding, TrainsAsOneRank) {
  ShardingCase alone{"one", {}, Shard::state};
  alone.muon = GetParam().muon;
  const std::vector<double> one = train_two_steps_sharding(options_for_sharding(alone)),
                            many = train_two_steps_sharding(options_for_sharding(GetParam()));
  ASSERT_EQ(one.size(), many.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], many[i], 1e-6 * std::max(1.0, std::abs(one[i]))) << i;
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(one[i], many[i], 1e-10 * std::max(1.0, std::abs(one[i]))) << i;
}

INSTANTIATE_TEST_SUITE_P(Cases, Sharding, testing::ValuesIn(kCasesSharding),
                         [](const auto& info) { return std::string(info.param.name); });

// Every tensor of a checkpoint with its bytes, whatever shards they lie in.
std::map<std::string, std::string> saved_sharding(const std::string& folder, RankTrainers& ranks) {
  std::vector<std::string> paths(static_cast<size_t>(ranks.size()));
  ranks.each([&](Trainer& trainer) {
    paths[static_cast<size_t>(trainer.ranks().rank())] = save_trainer(folder, {}, trainer);
  });
  std::map<std::string, std::string> by_name;
  const Checkpoint checkpoint(paths[0]);
  for (const SavedTensor& tensor : checkpoint.tensors()) {
    std::string& bytes = by_name[tensor.name];
    for (const std::span<const uint8_t> piece : tensor.pieces()) bytes.append(piece.begin(), piece.end());
  }
  return by_name;
}

TrainerOptions exact_options(const ShardingCase& c, Dtype dtype) {
  TrainerOptions o = options_for_sharding(c);
  o.plan.dtype = dtype;
  o.plan.exact_sums = true;
  return o;
}

// No layout changes exact sums, so neither does the cut.
TEST(ShardingBits, UnderExactSumsAreThoseOfCutState) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f32}) {
    std::map<std::string, std::string> state;
    for (const ShardingCase& c :
         {ShardingCase{"state", {.dp = 4, .ep = 2}, Shard::state},
          ShardingCase{"gradients", {.dp = 4}, Shard::gradients}, ShardingCase{"weights", {.dp = 4, .ep = 2}},
          ShardingCase{"by two", {.dp = 4}, Shard::weights, 2}}) {
      const ScratchFolder folder;
      RankTrainers ranks(exact_options(c, dtype));
      ranks.each([](Trainer& trainer) { trainer.initialise(); });
      for (uint64_t step = 0; step < 3; ++step) ranks.step(random_sequences(ranks[0], kSequences, step));
      const std::map<std::string, std::string> now = saved_sharding(folder / "state", ranks);
      if (state.empty()) state = now;
      EXPECT_TRUE(now == state) << c.name;
    }
  }
}

// The run goes on with the bits of the one that did not stop.
TEST(ShardingCheckpoint, GoesOnInAnotherLayout) {
  const ScratchFolder folder;
  RankTrainers first(exact_options({"by two", {.dp = 4}, Shard::weights, 2}, Dtype::bf16));
  first.each([](Trainer& trainer) { trainer.initialise(); });
  for (uint64_t step = 0; step < 2; ++step) first.step(random_sequences(first[0], kSequences, step));
  saved_sharding(folder / "first", first);
  for (const ShardingCase& c : {ShardingCase{"whole", {}, Shard::state}, ShardingCase{"two", {.dp = 2, .ep = 2}}}) {
    RankTrainers second(exact_options(c, Dtype::bf16));
    second.each([&](Trainer& trainer) { load_trainer(open_checkpoint(folder / "first"), trainer); });
    const ScratchFolder there;
    RankTrainers again(exact_options({"by two", {.dp = 4}, Shard::weights, 2}, Dtype::bf16));
    again.each([&](Trainer& trainer) { load_trainer(open_checkpoint(folder / "first"), trainer); });
    second.step(random_sequences(second[0], kSequences, 7));
    again.step(random_sequences(again[0], kSequences, 7));
    EXPECT_TRUE(saved_sharding(there / "second", second) == saved_sharding(there / "again", again)) << c.name;
  }
}

// Frozen weights are cut too: they are what is left of a model beside its adapters.
TEST(ShardingAdapters, FrozenWeightsAreCut) {
  const auto adapted = [](Shard shard, int ranks) {
    TrainerOptions o = options_for_sharding({"adapters", {.dp = 4}, shard, ranks});
    o.plan.lora.rank = 2;
    o.plan.lora.targets = "all";
    return o;
  };
  const std::vector<double> whole = train_two_steps_sharding(adapted(Shard::state, 0));
  for (const int ranks : {0, 2}) {
    const std::vector<double> cut = train_two_steps_sharding(adapted(Shard::weights, ranks));
    ASSERT_EQ(whole.size(), cut.size());
    for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(whole[i], cut[i], 1e-10 * std::max(1.0, std::abs(whole[i]))) << i;
  }
}

}  // namespace
}  // namespace heddle::train

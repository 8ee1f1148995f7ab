// Refusals of a plan: by which key, each cause once, and none of a plan that lowers.
#include "heddle/plan/check.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "tests/support/tiny_models.h"

namespace heddle::plan {
namespace {

Plan plan_of_two() {
  Plan plan;
  plan.sequences = 2;
  plan.sequence_length = 16;
  plan.microbatches = 4;
  return plan;
}

std::vector<std::string> keys_of(const model::ModelConfig& config, const Plan& plan) {
  std::vector<std::string> keys;
  for (const Refusal& refusal : refusals_of(config, plan)) keys.push_back(refusal.key);
  return keys;
}

using Keys = std::vector<std::string>;

TEST(Check, NothingIsRefusedOfWhatLowers) {
  const model::ModelConfig config = test::small_model();
  Plan plan = plan_of_two();
  EXPECT_EQ(keys_of(config, plan), Keys{});
  plan.mesh.pp = 2;
  EXPECT_EQ(keys_of(config, plan), Keys{});
  EXPECT_NO_THROW(lower(config, plan));
}

TEST(Check, EachCauseHasItsKey) {
  const model::ModelConfig config = test::small_model();
  const auto with = [&](const std::function<void(Plan&)>& change) {
    Plan plan = plan_of_two();
    change(plan);
    return keys_of(config, plan);
  };
  EXPECT_EQ(with([&](Plan& p) { p.sequence_length = 2 * config.max_position_embeddings; }),
            Keys{"train.sequence_length"});
  EXPECT_EQ(with([](Plan& p) {
              p.mesh.tp = 3;
              p.sequence_length = 18;
            }),
            (Keys{"mesh.tp", "mesh.tp"}));
  EXPECT_EQ(with([](Plan& p) { p.mesh.ep = 3; }), Keys{"mesh.ep"});
  EXPECT_EQ(with([](Plan& p) { p.mesh.dp = p.mesh.ep = 3; }), Keys{"mesh.ep"});
  EXPECT_EQ(with([](Plan& p) { p.mesh.dp = 0; }), Keys{"mesh.dp"});
  EXPECT_EQ(with([](Plan& p) { p.mesh.order = "tp-dp"; }), Keys{"mesh.order"});
  EXPECT_EQ(with([](Plan& p) {
              p.mesh.cp = 2;
              p.sequence_length = 18;
            }),
            Keys{"train.sequence_length"});
  EXPECT_EQ(with([](Plan& p) { p.parallel.schedule = "no such"; }), Keys{"parallel.schedule"});
  EXPECT_EQ(with([](Plan& p) {
              p.mesh.dp = 4;
              p.parallel.shard = passes::Shard::weights;
              p.parallel.shard_ranks = 3;
            }),
            Keys{"parallel.shard_ranks"});
  EXPECT_EQ(with([](Plan& p) {
              p.mesh.pp = 2;
              p.parallel.schedule = "dual_pipe";
              p.parallel.shard = passes::Shard::gradients;
            }),
            Keys{"parallel.shard"});
  EXPECT_EQ(with([](Plan& p) {
              p.mesh.pp = 2;
              p.parallel.layout = "Et|t";
            }),
            Keys{"parallel.layout"});
  EXPECT_EQ(with([](Plan& p) { p.device.expert_product = ProductWay::batched; }), Keys{"moe.product"});
  EXPECT_EQ(with([](Plan& p) {
              p.mesh.dp = 2;
              p.cached_sequences = 1;
            }),
            Keys{"mesh"});
  EXPECT_EQ(with([](Plan& p) {
              p.objective.learns = model::Learns::dpo;
              p.sequences = 3;
              p.weighs_labels = true;
            }),
            (Keys{"train.microbatch", "data.weight_key"}));
  model::ModelConfig wrong = config;
  wrong.num_experts_per_tok = wrong.n_routed_experts + 1;
  EXPECT_EQ(keys_of(wrong, plan_of_two()), Keys{"model.num_experts_per_tok"});
}

// Sizes of layers that a model doesn't have are in nobody's way.
TEST(Check, OnlyTheModelsOwnLayersAreCut) {
  model::ModelConfig config = test::small_model();
  config.num_attention_heads = 3, config.vocab_size = 63, config.intermediate_size = 66;
  Plan plan = plan_of_two();
  plan.mesh.tp = 3;
  plan.sequence_length = 18;
  EXPECT_EQ(keys_of(config, plan), Keys{"mesh.tp"});  // shared experts
  config.first_k_dense_replace = config.num_hidden_layers;
  EXPECT_EQ(keys_of(config, plan), Keys{});
  EXPECT_NO_THROW(lower(config, plan));
  config.intermediate_size = 64;
  EXPECT_EQ(keys_of(config, plan), Keys{"mesh.tp"});
}

// All of what is wrong at once, the model first; the schedule is not asked for.
TEST(Check, SeveralCausesAreAllTold) {
  const model::ModelConfig config = test::small_model();
  Plan plan = plan_of_two();
  plan.sequence_length = 2 * config.max_position_embeddings;
  plan.device.expert_product = ProductWay::batched;
  plan.mesh.dp = 0;
  plan.parallel.schedule = "no such";
  EXPECT_EQ(keys_of(config, plan), (Keys{"train.sequence_length", "moe.product", "mesh.dp"}));
  try {
    check(config, plan);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()), refusals_of(config, plan).front().message);
  }
}

}  // namespace
}  // namespace heddle::plan

// What a rank holds as the mesh grows: optimizer state falls with the copies that share it, weights with tp and ep.
#include <gtest/gtest.h>

#include "heddle/plan/plan.h"

namespace heddle {
namespace {

model::ModelConfig small() {
  model::ModelConfig c;
  c.vocab_size = 512;
  c.hidden_size = 64;
  c.num_hidden_layers = 2;
  c.first_k_dense_replace = 1;
  c.intermediate_size = 128;
  c.num_attention_heads = 8;
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 2;
  c.moe_intermediate_size = 32;
  return c;
}

double bytes_of(const plan::Degrees& mesh, ir::Role role) {
  plan::Plan plan;
  plan.mesh = mesh;
  plan.sequence_length = 64;
  const plan::Lowered lowered = plan::lower(small(), plan);
  const ir::Stage& stage = lowered.program.stages[0];
  double sum = 0;
  for (size_t v = 0; v < stage.values.size(); ++v) {
    if (stage.values[v].role == role)
      sum += static_cast<double>(stage.bytes(static_cast<ir::ValueId>(v), ir::FixedRows()));
  }
  return sum;
}

TEST(MemoryScaling, OptimizerStateFallsWithItsCopies) {
  // On one rank an fp32 weight is its own master, so that two copies hold three halves of what was two.
  const double two = bytes_of({.dp = 2}, ir::Role::optimizer);
  for (const int dp : {4, 8, 16}) {
    EXPECT_NEAR(bytes_of({.dp = dp}, ir::Role::optimizer) * dp / 2, two, 0.01 * two) << "dp " << dp;
    EXPECT_NEAR(bytes_of({.dp = dp, .ep = dp / 2}, ir::Role::optimizer) * dp / 2, two, 0.01 * two)
        << "dp " << dp << ", two copies of each expert";
  }
  EXPECT_NEAR(bytes_of({.tp = 2, .dp = 4}, ir::Role::optimizer) * 4, two, 0.01 * two);
}

TEST(MemoryScaling, WeightsFallWithTheirCuts) {
  const double one = bytes_of({}, ir::Role::weight);
  EXPECT_NEAR(bytes_of({.dp = 4}, ir::Role::weight), one, 0.01 * one) << "copies";
  EXPECT_LT(bytes_of({.dp = 4, .ep = 4}, ir::Role::weight), 0.9 * one);
  EXPECT_LT(bytes_of({.tp = 4, .ep = 4}, ir::Role::weight), 0.4 * one) << "latents and norms stay whole";
}

}  // namespace
}  // namespace heddle

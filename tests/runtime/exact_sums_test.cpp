// exact_sums: the same weights, bit for bit, after twenty steps on every layout of data, expert and pipeline ranks; and
// without it, other bits.
#include <gtest/gtest.h>

#include <cmath>

#include "heddle/base/random.h"
#include "heddle/kernels/exact_grid.h"
#include "heddle/kernels/registry.h"
#include "heddle/model/rope_table.h"
#include "tests/runtime/tiny_run.h"

namespace heddle {
namespace {

constexpr int64_t kSequence = 16;
constexpr int kMicrobatches = 8;  // of one sequence, in the whole batch
constexpr int kSteps = 20;

model::ModelConfig tiny() {
  model::ModelConfig c;
  c.vocab_size = 48;
  c.hidden_size = 16;
  c.num_hidden_layers = 3;
  c.first_k_dense_replace = 1;
  c.intermediate_size = 24;
  c.num_attention_heads = 2;
  c.q_lora_rank = 8;
  c.kv_lora_rank = 8;
  c.qk_nope_head_dim = 6;
  c.qk_rope_head_dim = 4;
  c.v_head_dim = 6;
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 3;
  c.moe_intermediate_size = 12;
  c.sequence_aux_loss_alpha = 0.01;
  c.z_loss_weight = 0.001;
  return c;
}

device::Batch batch_for(const model::ModelConfig& c, const plan::Plan& plan, int data_rank, int step) {
  device::Batch batch;
  const RandomKey key = RandomKey(7).with(static_cast<uint64_t>(step));
  for (int m = 0; m < plan.microbatches; ++m) {
    device::Microbatch& micro = batch.microbatches.emplace_back();
    for (int64_t i = 0; i < kSequence + 1; ++i) {
      const auto at = static_cast<uint64_t>((m * plan.mesh.dp + data_rank) * (kSequence + 1) + i);
      // Few kinds of token, so that routing is uneven and experts go without rows.
      micro.tokens.push_back(static_cast<int32_t>(key.bits(at) % (step % 3 == 0 ? 5 : 48)));
    }
  }
  const double tokens = static_cast<double>(kMicrobatches * kSequence);
  batch.scales = {1 / tokens, 1.0 / kMicrobatches, 1 / tokens};
  batch.hyper = {1e-2, 1 - std::pow(0.9, step + 1), 1 - std::pow(0.95, step + 1)};
  static_cast<void>(c);
  return batch;
}

struct Setting {
  Dtype dtype = Dtype::f32;
  std::string backend = "reference";
  bool exact = true;
};

/// All masters after the steps, by name.
std::map<std::string, std::vector<double>> train(const plan::Degrees& mesh, const Setting& setting) {
  const model::ModelConfig c = tiny();
  plan::Plan plan;
  plan.mesh = mesh;
  plan.microbatches = kMicrobatches / mesh.dp;
  plan.sequence_length = kSequence;
  plan.dtype = setting.dtype;
  plan.exact_sums = setting.exact;
  plan.update.bucket_bytes = 4000;
  plan.update.clip_norm = 0.05;  // clips
  if (setting.backend == "host") {
    plan.packed_bytes = [](const ir::Value& weight) { return kernels::packed_weight_bytes("host", weight); };
  }
  test::TinyRun run(c, plan, setting.backend, 1 << 24);
  const std::vector<double> table = model::rope_table(c, kSequence);
  run.fill([&](const model::Parameter& p, int64_t i) {
    switch (p.start) {
      case model::Parameter::Start::rope_table: return table[static_cast<size_t>(i)];
      case model::Parameter::Start::ones: return 1.0;
      case model::Parameter::Start::zeros: return 0.0;
      default: return 0.3 * RandomKey(3).with(p.name).normal(static_cast<uint64_t>(i));
    }
  });
  for (int step = 0; step < kSteps; ++step) {
    std::vector<device::Batch> batches;
    for (int r = 0; r < plan.ranks(); ++r) batches.push_back(batch_for(c, plan, run.mesh().at(r).at(ir::Axis::dp), step));
    run.run(batches);
  }
  std::map<std::string, std::vector<double>> masters;
  for (int r = 0; r < plan.ranks(); ++r) {
    for (const model::Parameter& p : run.parameters(r)) {
      if (p.start != model::Parameter::Start::rope_table) masters[p.name] = run.whole("master.", p.name);
    }
  }
  return masters;
}

const std::vector<plan::Degrees> kLayouts{
    {.dp = 2},          {.dp = 4},          {.dp = 8},
    {.dp = 2, .ep = 2}, {.dp = 4, .ep = 2}, {.dp = 4, .ep = 4, .expert_order = "edp-ep-etp"},
    {.dp = 8, .ep = 8}, {.pp = 3},          {.dp = 2, .pp = 2, .ep = 2},
    {.dp = 4, .pp = 3, .ep = 2, .order = "pp-dp-tp-cp"}};

void expect_same_weights(const Setting& setting, const std::vector<plan::Degrees>& layouts) {
  const auto expected = train({}, setting);
  double moved = 0;
  for (const auto& [name, values] : expected) {
    for (const double v : values) {
      ASSERT_TRUE(std::isfinite(v)) << name;
      moved += std::abs(v);
    }
  }
  EXPECT_GT(moved, 0);
  for (const plan::Degrees& mesh : layouts) {
    const auto found = train(mesh, setting);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, values] : expected) {
      EXPECT_EQ(found.at(name), values) << name << ", dp " << mesh.dp << " ep " << mesh.ep << " pp " << mesh.pp;
    }
  }
}

TEST(ExactSums, EveryLayoutGivesTheSameWeights) { expect_same_weights({}, kLayouts); }
TEST(ExactSums, InTheHostsBf16Too) { expect_same_weights({Dtype::bf16, "host"}, {kLayouts[1], kLayouts[4], kLayouts[7], kLayouts[8]}); }

TEST(ExactSums, WithoutItTheBitsDiffer) {
  const Setting plain{.exact = false};
  EXPECT_NE(train({}, plain), train({.dp = 4, .ep = 2}, plain));
}

TEST(ExactSums, TheGridIsExactInAnyOrder) {
  const RandomKey key(11);
  std::vector<float> partials(4096);
  for (size_t i = 0; i < partials.size(); ++i) {
    partials[i] = static_cast<float>(key.normal(i) * std::ldexp(1.0, -static_cast<int>(key.bits(i + 5000) % 30)) * 1e-2);
  }
  double forward = 0, backward = 0;
  for (size_t i = 0; i < partials.size(); ++i) {
    kernels::add_on_grid(&partials[i], 1, i == 0, &forward);
    kernels::add_on_grid(&partials[partials.size() - 1 - i], 1, i == 0, &backward);
  }
  EXPECT_EQ(forward, backward);
  double sum = 0;
  const float huge = 40, fine = 31;
  kernels::add_on_grid(&huge, 1, true, &sum);
  EXPECT_TRUE(std::isnan(sum));
  kernels::add_on_grid(&fine, 1, true, &sum);
  kernels::add_on_grid(&fine, 1, false, &sum);
  EXPECT_EQ(sum, 62);
  kernels::add_on_grid(&fine, 1, false, &sum);
  EXPECT_TRUE(std::isnan(sum)) << "the sum has left the range in which it is exact";

  kernels::ExactSquares up, down, broken;
  double plain = 0;
  for (size_t i = 0; i < partials.size(); ++i) {
    up.add(partials[i]);
    down.add(partials[partials.size() - 1 - i]);
    plain += static_cast<double>(partials[i]) * partials[i];
  }
  EXPECT_EQ(up.limbs(), down.limbs());
  EXPECT_NEAR(kernels::ExactSquares::value(up.limbs().data()), plain, 1e-12 * plain);
  broken.add(INFINITY);
  EXPECT_TRUE(std::isnan(kernels::ExactSquares::value(broken.limbs().data())));
}

}  // namespace
}  // namespace heddle

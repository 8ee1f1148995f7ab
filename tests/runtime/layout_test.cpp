// The thinnest slice through every floor: an attention and MoE model on two stages × two expert ranks gives, bit for
// bit, what one rank gives for the same rows.
#include <gtest/gtest.h>

#include <cmath>

#include "heddle/base/random.h"
#include "heddle/ir/print.h"
#include "heddle/model/rope_table.h"
#include "tests/runtime/tiny_run.h"

namespace heddle {
namespace {

model::ModelConfig tiny() {
  model::ModelConfig c;
  c.vocab_size = 50;
  c.hidden_size = 16;
  c.num_hidden_layers = 2;
  c.first_k_dense_replace = 0;
  c.intermediate_size = 24;
  c.num_attention_heads = 2;
  c.kv_lora_rank = 8;
  c.qk_nope_head_dim = 6;
  c.qk_rope_head_dim = 4;
  c.v_head_dim = 6;
  c.n_routed_experts = 4;
  c.num_experts_per_tok = 2;
  c.moe_intermediate_size = 10;
  c.sequence_aux_loss_alpha = 0.01;
  c.z_loss_weight = 0.001;
  return c;
}

constexpr int64_t kSequence = 9;

// Rank e of `expert_ranks` takes its share of the sequences of each microbatch.
device::Batch batch_for(const model::ModelConfig& c, int microbatches, int64_t all_sequences, int64_t share,
                        int64_t of) {
  device::Batch batch;
  const RandomKey key(7);
  const int64_t width = kSequence + 1 + c.num_nextn_predict_layers, mine = all_sequences / of;
  for (int m = 0; m < microbatches; ++m) {
    device::Microbatch& micro = batch.microbatches.emplace_back();
    for (int64_t i = 0; i < mine * width; ++i) {
      const auto at = static_cast<uint64_t>((m * all_sequences + share * mine) * width + i);
      micro.tokens.push_back(static_cast<int32_t>(key.bits(at) % static_cast<uint64_t>(c.vocab_size)));
    }
  }
  const double tokens = static_cast<double>(microbatches * all_sequences * kSequence);
  batch.scales = {1 / tokens, 1.0 / static_cast<double>(microbatches * all_sequences), 1 / tokens};
  batch.scales.resize(3 + static_cast<size_t>(c.num_nextn_predict_layers), 0.3 / tokens);
  batch.hyper = {1e-3, 0.1, 0.05};
  return batch;
}

void fill(test::TinyRun& run, const model::ModelConfig& c) {
  const std::vector<double> table = model::rope_table(c, kSequence);
  run.fill([&](const model::Parameter& p, int64_t i) {
    switch (p.start) {
      case model::Parameter::Start::rope_table: return table[static_cast<size_t>(i)];
      case model::Parameter::Start::ones: return 1.0;
      case model::Parameter::Start::zeros: return 0.0;
      default: return 0.3 * RandomKey(3).with(p.name).normal(static_cast<uint64_t>(i));
    }
  });
}

std::vector<device::Batch> batches_for(const model::ModelConfig& c, const plan::Plan& plan, int64_t all_sequences) {
  std::vector<device::Batch> batches;
  for (int r = 0; r < plan.ranks(); ++r) {
    batches.push_back(batch_for(c, plan.microbatches, all_sequences, plan.expert_rank_of(r), plan.expert_ranks));
  }
  return batches;
}

double relative(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

plan::Plan plan_for(int pipeline, int experts, int64_t all_sequences, const std::set<std::string>& fusions) {
  plan::Plan plan;
  plan.pipeline_ranks = pipeline;
  plan.expert_ranks = experts;
  plan.microbatches = 3;
  plan.sequences = all_sequences / experts;
  plan.sequence_length = kSequence;
  plan.dtype = Dtype::f64;
  plan.fusions = fusions;
  return plan;
}

// Every accumulator of `pipeline` × `experts` ranks against one rank's: a rank's experts see the same rows in the same
// order, so their gradients are the same bits; the parts that ranks hold of a sum over tokens add up to it.
void expect_equal_to_one_rank(int pipeline, int experts, const std::set<std::string>& fusions) {
  const model::ModelConfig c = tiny();
  test::TinyRun one(c, plan_for(1, 1, 4, fusions), "reference", 1 << 24);
  test::TinyRun many(c, plan_for(pipeline, experts, 4, fusions), "reference", 1 << 24);
  for (test::TinyRun* run : {&one, &many}) {
    fill(*run, c);
    run->run(batches_for(c, run->plan(), 4));
  }
  for (int r = 0; r < many.plan().ranks(); ++r) {
    const ir::Stage& stage = many.stage(r);
    const int e = many.plan().expert_rank_of(r);
    for (const auto& [weight, accumulators] : stage.accumulators) {
      const std::string name = stage.value(accumulators[0]).name;
      std::vector<double> expected = one.read(0, name), found = many.read(r, name);
      if (found.size() < expected.size()) {
        const auto first = expected.begin() + static_cast<long>(static_cast<size_t>(e) * found.size());
        EXPECT_EQ(std::vector<double>(first, first + static_cast<long>(found.size())), found) << name;
      } else if (experts == 1) {
        EXPECT_EQ(expected, found) << name;
      } else if (e == 0) {
        for (int k = 1; k < experts; ++k) {
          const std::vector<double> other = many.read(r + k, name);
          for (size_t i = 0; i < found.size(); ++i) found[i] += other[i];
        }
        EXPECT_LT(relative(found, expected), 1e-10) << name;
      }
    }
  }
  double loss = 0;
  for (int e = 0; e < experts; ++e) loss += many.read((pipeline - 1) * experts + e, "loss.next_token")[0];
  const double tokens = 3 * 4 * kSequence;
  EXPECT_NEAR(loss, one.read(0, "loss.next_token")[0], 1e-12 * loss);
  EXPECT_GT(loss / tokens, 3.0);  // about ln 50 at the start
  EXPECT_LT(loss / tokens, 6.0);
}

const std::set<std::string> kAll(passes::fusion_names().begin(), passes::fusion_names().end());

TEST(Layout, TwoStagesEqualOneRank) { expect_equal_to_one_rank(2, 1, kAll); }
TEST(Layout, TwoExpertRanksEqualOneRank) { expect_equal_to_one_rank(1, 2, kAll); }
TEST(Layout, TwoStagesByTwoExpertRanksEqualOneRank) { expect_equal_to_one_rank(2, 2, kAll); }
TEST(Layout, UnfusedToo) { expect_equal_to_one_rank(2, 2, {}); }

}  // namespace
}  // namespace heddle

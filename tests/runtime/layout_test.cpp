// An attention and MoE model on many ranks against one rank, for the same batch: the loss, every gradient and the
// parameters after a step. Tensor and context parallelism add in other orders; pipeline and expert ranks do not.
#include <gtest/gtest.h>

#include <cmath>

#include "heddle/base/random.h"
#include "heddle/ir/print.h"
#include "tests/runtime/tiny_run.h"
#include "tests/support/relative.h"
#include "tests/support/tiny_models.h"
#include "tests/support/usual_start.h"

namespace heddle {
namespace {

using test::relative;

model::ModelConfig tiny() {
  model::ModelConfig c = test::tiny_balanced_model();
  c.num_attention_heads = 4;
  return c;
}

constexpr int64_t kSequenceLayout = 16;
constexpr int kMicrobatches = 4;   // of two sequences, in the whole batch
constexpr int64_t kSequences = 2;  // a microbatch

// The global microbatches d, d + dp, d + 2·dp, … are those of data rank d.
test::Batch batch_for(const model::ModelConfig& c, const plan::Plan& plan, int data_rank) {
  test::Batch batch;
  const RandomKey key(7);
  const int64_t width = kSequenceLayout + 1 + c.num_nextn_predict_layers;
  for (int m = 0; m < plan.microbatches; ++m) {
    runtime::Microbatch& micro = batch.microbatches.emplace_back();
    for (int64_t i = 0; i < kSequences * width; ++i) {
      const auto at = static_cast<uint64_t>((m * plan.mesh.dp + data_rank) * kSequences * width + i);
      micro.tokens.push_back(static_cast<int32_t>(key.bits(at) % static_cast<uint64_t>(c.vocab_size)));
    }
  }
  const double tokens = static_cast<double>(kMicrobatches * kSequences * kSequenceLayout);
  batch.scales = {1 / tokens, 1.0 / static_cast<double>(kMicrobatches * kSequences), 1 / tokens};
  batch.scales.resize(3 + static_cast<size_t>(c.num_nextn_predict_layers), 0.3 / tokens);
  batch.hyper = {1e-3, 0.1, 0.05};
  return batch;
}

void run_once(test::TinyRun& run, const model::ModelConfig& c) {
  run.fill(test::UsualStart(c, kSequenceLayout, 3));
  std::vector<test::Batch> batches;
  for (int r = 0; r < run.plan().ranks(); ++r) {
    batches.push_back(batch_for(c, run.plan(), run.mesh().at(r).at(ir::Axis::dp)));
  }
  run.run(batches);
}

plan::Plan plan_for(const plan::Degrees& mesh, const std::set<std::string>& fusions, const std::string& context) {
  plan::Plan plan;
  plan.mesh = mesh;
  plan.parallel.context = from_word<model::Context>(context);
  plan.microbatches = kMicrobatches / mesh.dp;
  plan.sequences = kSequences;
  plan.sequence_length = kSequenceLayout;
  plan.dtype = Dtype::f64;
  plan.fusions = fusions;
  plan.update.bucket_bytes = 4000;
  return plan;
}

const std::set<std::string> kAll(passes::fusion_names().begin(), passes::fusion_names().end());

void expect_equal_to_one_rank(const plan::Degrees& mesh, const std::set<std::string>& fusions = kAll,
                              const std::string& context = "gather", const model::ModelConfig& c = tiny(),
                              int inner = 0) {
  plan::Plan plan = plan_for(mesh, fusions, context);
  plan.parallel.context_inner = inner;
  test::TinyRun one(c, plan_for({}, fusions, context), "reference", 1 << 24);
  test::TinyRun many(c, plan, "reference", 1 << 24);
  run_once(one, c);
  run_once(many, c);
  const bool same_bits = mesh.stage_ranks() == 1;
  for (const model::Parameter& p : one.parameters(0)) {
    if (!p.trained) continue;
    const std::vector<double> expected = one.whole("grad.", p.name), found = many.whole("grad.", p.name);
    if (same_bits) {
      EXPECT_EQ(expected, found) << p.name;
    } else {
      EXPECT_LT(relative(found, expected), 1e-10) << "gradient of " << p.name;
    }
    EXPECT_LT(relative(many.whole("master.", p.name), one.whole("master.", p.name)), 1e-10) << p.name;
    EXPECT_LT(relative(many.whole("v.", p.name), one.whole("v.", p.name)), 1e-10) << "v of " << p.name;
  }
  for (const char* name : {"loss.next_token", "loss.sequence_aux.1", "loss.z.0"}) {
    EXPECT_NEAR(many.total(name), one.total(name), 1e-11 * std::abs(one.total(name))) << name;
  }
  EXPECT_NEAR(many.read(0, "grad_norm")[0], one.read(0, "grad_norm")[0], 1e-11);
  const double loss =
      one.total("loss.next_token") / static_cast<double>(kMicrobatches * kSequences * kSequenceLayout);
  EXPECT_GT(loss, 3.0);  // about ln 48 at the start
  EXPECT_LT(loss, 6.0);
}

TEST(Layout, TwoStages) { expect_equal_to_one_rank({.pp = 2}); }
TEST(Layout, TwoDataRanks) { expect_equal_to_one_rank({.dp = 2}); }
TEST(Layout, TwoExpertRanks) { expect_equal_to_one_rank({.dp = 2, .ep = 2}); }
TEST(Layout, FourExpertRanks) { expect_equal_to_one_rank({.dp = 4, .ep = 4}); }
TEST(Layout, TwoStagesByTwoExpertRanks) { expect_equal_to_one_rank({.dp = 2, .pp = 2, .ep = 2}); }
TEST(Layout, TwoTensorRanks) { expect_equal_to_one_rank({.tp = 2}); }
TEST(Layout, FourTensorRanks) { expect_equal_to_one_rank({.tp = 4}); }
TEST(Layout, TensorRanksShareTheExperts) { expect_equal_to_one_rank({.tp = 2, .dp = 2, .ep = 4}); }
TEST(Layout, TensorDataPipelineAndExpertRanks) { expect_equal_to_one_rank({.tp = 2, .dp = 2, .pp = 2, .ep = 2}); }
TEST(Layout, Unfused) { expect_equal_to_one_rank({.tp = 2, .dp = 2, .pp = 2, .ep = 2}, {}); }

TEST(Layout, PipelineFastest) {
  expect_equal_to_one_rank(
      {.tp = 2, .dp = 2, .pp = 2, .ep = 2, .order = "pp-dp-tp-cp", .expert_order = "ep-edp-etp"});
}

// Attention across the ranks of cp, each kind of it.
class Context : public testing::TestWithParam<const char*> {
 protected:
  void expect_equal(const plan::Degrees& mesh, const std::set<std::string>& fusions = kAll,
                    const model::ModelConfig& c = tiny()) {
    expect_equal_to_one_rank(mesh, fusions, GetParam(), c);
  }
};
INSTANTIATE_TEST_SUITE_P(Layout, Context, testing::Values("gather", "ulysses", "ring"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Context, TwoRanks) { expect_equal({.cp = 2}); }
TEST_P(Context, FourRanks) { expect_equal({.cp = 4}); }
TEST_P(Context, UnfusedWithTensorRanks) { expect_equal({.tp = 2, .cp = 2}, {}); }
TEST_P(Context, TwoTensorByTwoDataRanks) { expect_equal({.tp = 2, .cp = 2, .dp = 2, .ep = 4}); }
TEST_P(Context, StagesAndExpertRanks) { expect_equal({.cp = 2, .dp = 2, .pp = 2, .ep = 4}); }
TEST_P(Context, ContextFastest) {
  expect_equal({.tp = 2, .cp = 2, .pp = 2, .ep = 2, .order = "cp-pp-tp-dp", .expert_order = "ep-edp-etp"});
}
// Depths read tokens beyond the end of a chunk; queries of a low rank.
TEST_P(Context, TokensAhead) {
  model::ModelConfig c = tiny();
  c.num_nextn_predict_layers = 2;
  c.q_lora_rank = 8;
  expect_equal({.cp = 2}, kAll, c);
}

// Heads among neighbours, keys and values round the others: rings of two and of four.
TEST(HybridContext, FourRanks) { expect_equal_to_one_rank({.cp = 4}, kAll, "hybrid"); }
TEST(HybridContext, EightRanks) {
  for (const int inner : {2, 4}) expect_equal_to_one_rank({.cp = 8}, kAll, "hybrid", tiny(), inner);
}
TEST(HybridContext, UnfusedWithTensorRanks) { expect_equal_to_one_rank({.tp = 2, .cp = 4}, {}, "hybrid"); }
TEST(HybridContext, ContextBetweenOtherAxes) {
  expect_equal_to_one_rank(
      {.tp = 2, .cp = 4, .pp = 2, .ep = 2, .order = "pp-tp-cp-dp", .expert_order = "ep-edp-etp"}, kAll, "hybrid");
}
TEST(HybridContext, GroupedHeads) {
  model::ModelConfig c = test::tiny_grouped_model();
  c.attention_sinks = true;
  c.sliding_window = 5;
  c.max_window_layers = 1;
  expect_equal_to_one_rank({.cp = 4}, kAll, "hybrid", c);
}

// Keys and values round inner rings, and one message at a time on to the next of these.
TEST(DoubleRing, FourRanks) { expect_equal_to_one_rank({.cp = 4}, kAll, "double_ring"); }
TEST(DoubleRing, EightRanks) {
  for (const int inner : {2, 4}) expect_equal_to_one_rank({.cp = 8}, kAll, "double_ring", tiny(), inner);
}
TEST(DoubleRing, UnfusedWithTensorRanks) { expect_equal_to_one_rank({.tp = 2, .cp = 4}, {}, "double_ring"); }
TEST(DoubleRing, ContextBetweenOtherAxes) {
  expect_equal_to_one_rank(
      {.tp = 2, .cp = 4, .pp = 2, .ep = 2, .order = "pp-tp-cp-dp", .expert_order = "ep-edp-etp"}, kAll,
      "double_ring");
}
TEST(DoubleRing, GroupedHeadsFewerThanRanks) {
  model::ModelConfig c = test::tiny_grouped_model();
  c.attention_sinks = true;
  c.sliding_window = 5;
  c.max_window_layers = 1;
  expect_equal_to_one_rank({.cp = 8}, kAll, "double_ring", c, 4);
}

std::string text_of_ring(const plan::Plan& plan) {
  std::string found;
  const plan::Lowered lowered = plan::lower(tiny(), plan);
  for (const ir::Op& op : lowered.program.listings[0].ops) {
    if (op.layer != 0 || op.phase != ir::Phase::F || !op.group.starts_with("cp")) continue;
    found += fmt::format("{} {} ", op.kind(), op.group);
  }
  return found;
}
// Latents cross the runs of neighbours, and only neighbours change heads.
TEST(HybridContext, Messages) {
  plan::Plan plan = plan_for({.cp = 8}, kAll, "hybrid");
  plan.parallel.context_inner = 4;
  const std::string keys = "all_gather cp_in4 heads_to_sequence cp_in4 ";
  EXPECT_EQ(text_of_ring(plan), "heads_to_sequence cp_in4 ring_shift cp_across4 ring_shift cp_across4 " + keys +
                                    keys + "sequence_to_heads cp_in4 ");
}

// Three rounds of an inner ring of two, in messages of latent and key; in each but the last the share of the
// round's begin crosses to the next ring, ahead of what goes round.
TEST(DoubleRing, Messages) {
  plan::Plan plan = plan_for({.cp = 6}, kAll, "double_ring");
  plan.sequence_length = 24;
  plan.parallel.context_inner = 2;
  const std::string near = "ring_shift cp_in2 ", far = "ring_shift cp_across2 ";
  const std::string both = far + near + far + near, last = near + near;
  EXPECT_EQ(text_of_ring(plan), both + both + last);
}

TEST(ContextPlan, HeadsMustDivide) {
  const auto message = [](const plan::Degrees& mesh, const std::string& context, int inner = 0) -> std::string {
    try {
      plan::Plan plan = plan_for(mesh, kAll, context);
      plan.parallel.context_inner = inner;
      plan::lower(tiny(), plan);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message({.tp = 2, .cp = 4}, "ulysses"),
            "model.num_attention_heads (4) is not a multiple of mesh.tp × mesh.cp, as parallel.context 'ulysses' "
            "needs (8); a product of 1, 2, 4 goes with the model, any with parallel.context = \"ring\"");
  EXPECT_EQ(message({.cp = 2}, "hybrid"),
            "parallel.context = \"hybrid\" with mesh.cp = 2 and 4 heads on each rank of mesh.tp: no run of 2 to 1 "
            "ranks divides both; parallel.context = \"ring\" goes with it");
  EXPECT_EQ(message({.cp = 8}, "hybrid", 8),
            "parallel.context_inner is 8 with mesh.cp = 8 and 4 heads on each rank of mesh.tp; 2, 4 go with them");
  EXPECT_EQ(message({.cp = 8}, "hybrid", 3),
            "parallel.context_inner is 3 with mesh.cp = 8 and 4 heads on each rank of mesh.tp; 2, 4 go with them");
  EXPECT_EQ(message({.cp = 2}, "double_ring"),
            "parallel.context = \"double_ring\" with mesh.cp = 2: no run of 2 to 1 ranks divides them; "
            "parallel.context = \"ring\" goes with it");
  EXPECT_EQ(message({.cp = 8}, "double_ring", 3), "parallel.context_inner is 3 with mesh.cp = 8; 2, 4 go with it");
}

}  // namespace
}  // namespace heddle

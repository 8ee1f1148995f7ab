// What a rank holds as the mesh grows: optimizer state falls with the copies that share it, weights with tp and ep,
// activations with tp × cp when gathered rows are made again. Figures are the arena's.
#include <gtest/gtest.h>

#include "heddle/passes/recompute.h"
#include "heddle/runtime/predict.h"
#include "tests/simulate/tiny_step.h"

namespace heddle {
namespace {

// Heads for eight ranks of tp, and a vocabulary beside which norms weigh little.
model::ModelConfig small() {
  model::ModelConfig c = test::small_model();
  c.vocab_size = 512;
  c.num_attention_heads = 8;
  return c;
}

double bytes_of(const plan::Degrees& mesh, ir::Role role) {
  plan::Plan plan;
  plan.mesh = mesh;
  plan.sequence_length = 64;
  const plan::Lowered lowered = plan::lower(small(), plan);
  const ir::Listing& listing = lowered.program.listings[0];
  double sum = 0;
  for (size_t v = 0; v < listing.values.size(); ++v) {
    if (listing.values[v].role == role)
      sum += static_cast<double>(listing.bytes(static_cast<ir::ValueId>(v), ir::FixedRows()));
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

// A model in which nothing but activations is large.
model::ModelConfig deep(bool experts) {
  model::ModelConfig c = test::tiny_model();
  c.num_hidden_layers = 5;
  c.hidden_size = 32;
  c.first_k_dense_replace = experts ? 1 : 5;
  c.intermediate_size = 48;
  c.num_attention_heads = 8;
  c.q_lora_rank = 12;
  c.moe_intermediate_size = 12;
  return c;
}

plan::Plan activation_plan(const plan::Degrees& mesh, const std::string& context, const std::string& words) {
  plan::Plan plan;
  plan.mesh = mesh;
  plan.parallel.context = from_word<model::Context>(context);
  plan.sequence_length = 128;
  plan.microbatches = 1;
  plan.memory.recompute = passes::recompute_groups(words);
  return plan;
}

// A step of every rank, op by op: the bytes above what persists that the arena holds after the last layer's forward
// of the first microbatch, and at the peak, of the rank that has most.
struct Held {
  int64_t after_layers = 0, at_peak = 0;
};
Held held_by(const model::ModelConfig& c, const plan::Plan& plan) {
  test::TinyRun run(c, plan, "reference", 1 << 23);
  const std::vector<double> table = model::rope_table(c, plan.sequence_length);
  run.fill([&](const model::Parameter& p, int64_t i) {
    if (p.start == model::Parameter::Start::rope_table) return table[static_cast<size_t>(i)];
    return 0.1 * RandomKey(1).with(p.name).normal(static_cast<uint64_t>(i));
  });
  const std::vector<test::Batch> batches = test::tiny_batches(c, plan, 1);
  std::vector<Held> held(batches.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < batches.size(); ++r) {
    threads.emplace_back([&, r] {
      runtime::Executor& executor = run.executor(static_cast<int>(r));
      executor.run_step(test::inputs_of(batches[r], executor), [&](const ir::Issue& issue,
                                                                   const device::KernelCall&) {
        if (issue.op->phase == ir::Phase::F && issue.op->layer + 1 == c.num_hidden_layers && issue.microbatch == 0)
          held[r].after_layers = issue.live_bytes - executor.walk().persistent_bytes();
      });
      held[r].at_peak = executor.walk().storage().peak_live_bytes() - executor.walk().persistent_bytes();
    });
  }
  for (std::thread& thread : threads) thread.join();
  Held most;
  for (const Held& h : held) {
    most.after_layers = std::max(most.after_layers, h.after_layers);
    most.at_peak = std::max(most.at_peak, h.at_peak);
  }
  return most;
}

class Activations : public testing::TestWithParam<std::tuple<const char*, bool>> {};
INSTANTIATE_TEST_SUITE_P(MemoryScaling, Activations,
                         testing::Combine(testing::Values("gather", "ulysses", "ring"), testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "Experts" : "Dense");
                         });

// With keys and values made again on one rank too: where the keys of a sequence come from other ranks, `gather`
// makes them again with what they are made of, which alone is less than one rank's share of what one rank keeps.
TEST_P(Activations, FallWithTensorTimesContextRanks) {
  const auto [context, experts] = GetParam();
  const model::ModelConfig c = deep(experts);
  for (const std::string words : {"gather", "gather,mla_up"}) {
    const auto one = static_cast<double>(held_by(c, activation_plan({}, context, words)).after_layers);
    for (const auto& [tp, cp] : std::vector<std::pair<int, int>>{{2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {4, 2}}) {
      const Held held = held_by(c, activation_plan({.tp = tp, .cp = cp}, context, words));
      const double share = static_cast<double>(held.after_layers) * tp * cp / one;
      EXPECT_LE(share, 1.04) << words << ", tp " << tp << ", cp " << cp;
      const bool whole = words == "gather" && cp > 1;  // see above
      EXPECT_GE(share, whole ? 0.75 : 0.97) << words << ", tp " << tp << ", cp " << cp;
    }
  }
  const plan::Plan kept = activation_plan({.tp = 4, .cp = 2}, context, "");
  const auto one = static_cast<double>(held_by(c, activation_plan({}, context, "")).after_layers);
  EXPECT_GT(static_cast<double>(held_by(c, kept).after_layers) * 8 / one, 1.2) << "kept gathers hide the fall";
}

// What `heddle inspect` prints. Without spread experts no count depends on the data.
TEST_P(Activations, ArePredicted) {
  const auto [context, experts] = GetParam();
  for (const plan::Degrees& mesh :
       std::vector<plan::Degrees>{{}, {.tp = 2, .cp = 2}, {.cp = 4}, {.tp = 4, .cp = 2}}) {
    for (const char* words : {"", "gather", "norm,gather,mla_up,medium"}) {
      const plan::Plan plan = activation_plan(mesh, context, words);
      const plan::Lowered lowered = plan::lower(deep(experts), plan);
      const runtime::MemoryPrediction predicted = runtime::predict_memory(lowered.program, 0, "reference", 1 << 23);
      EXPECT_EQ(held_by(deep(experts), plan).at_peak, predicted.peak_live_bytes - predicted.persistent_bytes)
          << plan::text_of(mesh) << " with " << words;
    }
  }
}

}  // namespace
}  // namespace heddle

// What the backward makes again against what it kept: the same bits of every gradient, statistic and state, in any
// layout and schedule; fewer bytes live at the peak, and as many as the walk foretells.
#include "heddle/passes/recompute.h"

#include <gtest/gtest.h>

#include "heddle/schedule/generators.h"
#include "tests/simulate/tiny_step.h"

namespace heddle::test {
namespace {

constexpr int64_t kArenaBytes = 1 << 23;

model::ModelConfig small(int64_t latent_queries = 8) {
  model::ModelConfig c = tiny_model();
  c.num_hidden_layers = 4;
  c.first_k_dense_replace = 1;
  c.num_attention_heads = 4;
  c.q_lora_rank = latent_queries;
  c.sequence_aux_loss_alpha = 0.01;
  c.z_loss_weight = 0.001;
  return c;
}

plan::Plan plan_for(const plan::Degrees& mesh, const std::string& words, const std::string& schedule = "1f1b") {
  plan::Plan plan;
  plan.mesh = mesh;
  plan.microbatches = 4;
  plan.sequences = 2;
  plan.sequence_length = kTinySequence;
  plan.recompute = words;
  plan.schedule = schedule;
  plan.update.bucket_bytes = 4000;
  return plan;
}

struct Outcome {
  std::vector<std::pair<std::string, std::vector<double>>> values;  // by name
};

Outcome outcome_of(const model::ModelConfig& c, const plan::Plan& plan, const std::string& backend) {
  TinyRun run(c, plan, backend, kArenaBytes);
  fill(run, c, 5);
  run.run(tiny_batches(c, plan, 5));
  Outcome outcome;
  for (int r = 0; r < plan.ranks(); ++r) {
    for (const ir::Value& value : run.stage(r).values) {
      if (value.role < ir::Role::accumulator) continue;
      outcome.values.emplace_back(fmt::format("rank {} {}", r, value.name), run.read(r, value.name));
    }
  }
  return outcome;
}

void expect_same_bits(const model::ModelConfig& c, const plan::Plan& plan, const std::string& backend) {
  plan::Plan kept = plan;
  kept.recompute.clear();
  // What is kept does not depend on the word: once for all of them.
  static std::map<std::string, Outcome> known;
  const std::string key = fmt::format("{} {} {} {} {} {} {} {} {}", plan::text_of(plan.mesh), plan.context,
                                      plan.exchange.topology, plan.schedule, name_of(plan.dtype),
                                      plan.fusions.size(), backend, c.q_lora_rank, c.num_nextn_predict_layers);
  if (!known.contains(key)) known[key] = outcome_of(c, kept, backend);
  const Outcome with = outcome_of(c, plan, backend);
  const Outcome& without = known.at(key);
  ASSERT_EQ(with.values.size(), without.values.size());
  for (size_t i = 0; i < with.values.size(); ++i) {
    EXPECT_EQ(with.values[i].first, without.values[i].first);
    EXPECT_EQ(with.values[i].second, without.values[i].second)
        << with.values[i].first << " with " << plan.recompute;
  }
}

int replays(const model::ModelConfig& c, const plan::Plan& plan, ir::Phase phase) {
  int count = 0;
  for (const ir::Stage& stage : plan::lower(c, plan).program.stages) {
    for (const ir::Op& op : stage.ops) count += op.again && op.phase == phase ? 1 : 0;
  }
  return count;
}

std::vector<std::string> all_words() {
  std::vector<std::string> words;
  for (const passes::RecomputeWord& word : passes::recompute_words()) words.push_back(word.name);
  words.push_back("norm,gather,mla_up,attention,medium");
  return words;
}

class Recompute : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Words, Recompute, testing::ValuesIn(all_words()), [](const auto& info) {
  return info.param.find(',') == std::string::npos ? info.param : std::string("several");
});

TEST_P(Recompute, OneRankKeepsEveryBit) {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    plan::Plan plan = plan_for({}, GetParam());
    plan.dtype = dtype;
    expect_same_bits(small(), plan, dtype == Dtype::f64 ? "reference" : "host");
  }
  plan::Plan unfused = plan_for({}, GetParam());
  unfused.fusions.clear();
  expect_same_bits(small(0), unfused, "reference");
  if (GetParam() != "gather")
    EXPECT_GT(replays(small(), plan_for({}, GetParam()), ir::Phase::I) +
                  replays(small(), plan_for({}, GetParam()), ir::Phase::W),
              0);
}

TEST_P(Recompute, LayoutsKeepEveryBit) {
  for (const char* context : {"gather", "ulysses", "ring"}) {
    plan::Plan plan = plan_for({.tp = 2, .cp = 2}, GetParam());
    plan.context = context;
    expect_same_bits(small(), plan, "reference");
  }
  expect_same_bits(small(), plan_for({.tp = 2, .dp = 2, .ep = 2, .etp = 2}, GetParam()), "reference");
  plan::Plan merged = plan_for({.dp = 4, .ep = 4}, GetParam());
  merged.exchange.topology = "merge";
  expect_same_bits(small(), merged, "reference");
}

TEST_P(Recompute, SchedulesKeepEveryBit) {
  for (const std::string schedule : {"1f1b", "zb_h1", "dual_pipe_v"}) {
    expect_same_bits(small(), plan_for({.dp = 2, .pp = 2, .ep = 2}, GetParam(), schedule), "reference");
  }
}

TEST_P(Recompute, FurtherTokensKeepEveryBit) {
  model::ModelConfig c = small();
  c.num_nextn_predict_layers = 2;
  c.tie_word_embeddings = true;
  expect_same_bits(c, plan_for({.tp = 2}, GetParam()), "reference");
}

// The walk without streams foretells the peak of the run, and it is lower.
TEST_P(Recompute, ThePeakIsForetoldToTheByte) {
  const model::ModelConfig c = small();
  for (const plan::Degrees& mesh :
       std::vector<plan::Degrees>{{}, {.tp = 2, .dp = 2, .ep = 4}, {.cp = 2, .pp = 2}}) {
    const plan::Plan plan = plan_for(mesh, GetParam());
    TinyRun run(c, plan, "reference", kArenaBytes);
    fill(run, c, 3);
    RowsSeen rows;
    rows.run(run, tiny_batches(c, plan, 3));
    const simulate::ScratchBytes scratch = scratch_of(run);
    for (int r = 0; r < plan.ranks(); ++r) {
      simulate::RecordOptions options;
      options.capacity_bytes = kArenaBytes;
      options.scratch_bytes = scratch;
      options.rows = rows.read();
      const simulate::Recording foretold = simulate::record(run.lowered().program, r, options);
      EXPECT_EQ(foretold.peak_live_bytes, run.executor(r).walk().storage().peak_live_bytes()) << "rank " << r;
      EXPECT_EQ(foretold.reserved_bytes, run.executor(r).walk().storage().reserved_bytes()) << "rank " << r;
    }
  }
}

int64_t foretold_peak(const model::ModelConfig& c, const plan::Plan& plan) {
  const ir::StepProgram program = plan::lower(c, plan).program;
  const simulate::Recording recording = simulate::record(program, 0, {});
  return recording.peak_live_bytes - recording.persistent_bytes;
}

TEST(RecomputePeak, FallsWithEachLevel) {
  model::ModelConfig c = small();
  c.num_hidden_layers = 8;
  plan::Plan plan = plan_for({}, "");
  plan.sequences = 16;
  std::vector<int64_t> peaks;
  for (const char* words : {"", "light", "medium", "full", "norm,mla_up,attention,mlp,full", "layer"}) {
    plan.recompute = words;
    peaks.push_back(foretold_peak(c, plan));
  }
  for (size_t i = 1; i < peaks.size(); ++i) EXPECT_LT(peaks[i], peaks[i - 1]) << "level " << i;
  EXPECT_LT(peaks.back() * 2, peaks.front());
}

// A layer that is made again leaves its input and small things: what is live grows by little more with each layer.
TEST(RecomputePeak, ALayerLeavesItsInput) {
  model::ModelConfig c = small();
  plan::Plan plan = plan_for({}, "layer");
  plan.dtype = Dtype::f32;
  plan.sequences = 16;
  c.num_hidden_layers = 6;
  const int64_t six = foretold_peak(c, plan);
  c.num_hidden_layers = 16;
  const int64_t a_layer = (foretold_peak(c, plan) - six) / 10;
  const int64_t tokens = plan.sequences * plan.sequence_length;
  const int64_t input = tokens * c.hidden_size * 4;
  // Beside it: two norms' and three latents' sums of a row, a softmax's of a head, expert, row and token of a
  // choice.
  const int64_t metadata = tokens * 4 * (4 + c.num_attention_heads + 3 * c.num_experts_per_tok);
  EXPECT_GE(a_layer, input);
  EXPECT_LE(a_layer, input + metadata + 1024);
}

// Where W runs apart, a clone of its own keeps I's from living until then.
TEST(RecomputePeak, DeferredWeightGradientsMakeTheirOwn) {
  model::ModelConfig c = small();
  c.num_hidden_layers = 8;
  plan::Plan plan = plan_for({.pp = 2}, "layer", "zb_h1");
  EXPECT_GT(replays(c, plan, ir::Phase::W), 0);
  const int64_t split = foretold_peak(c, plan);
  plan.recompute.clear();
  EXPECT_LT(split, foretold_peak(c, plan));
  plan.recompute = "layer";
  plan.schedule = "1f1b";
  EXPECT_LT(replays(c, plan, ir::Phase::W), replays(c, plan, ir::Phase::I));
}

TEST(RecomputeText, OnlyTheNamedLayers) {
  const auto layers = [](const std::string& words) {
    std::set<int> found;
    for (const ir::Op& op : plan::lower(small(), plan_for({}, words)).program.stages[0].ops) {
      if (op.again) found.insert(op.layer);
    }
    return found;
  };
  EXPECT_EQ(layers("attention"), (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(layers("attention:1-2"), (std::set<int>{1, 2}));
  EXPECT_EQ(layers("norm:0"), (std::set<int>{0}));
  EXPECT_EQ(layers("moe"), (std::set<int>{1, 2, 3}));
  EXPECT_EQ(layers("moe:0, mlp"), (std::set<int>{0}));
}

TEST(RecomputeText, NothingThatChoosesRunsTwice) {
  for (const plan::Degrees& mesh : std::vector<plan::Degrees>{{}, {.dp = 2, .ep = 2}}) {
    for (const ir::Stage& stage : plan::lower(small(), plan_for(mesh, "layer")).program.stages) {
      for (const ir::Op& op : stage.ops) EXPECT_TRUE(!op.again || op.def->replayable) << op.kind();
    }
  }
}

TEST(RecomputeText, Refusals) {
  const auto message = [](const std::string& words) -> std::string {
    try {
      passes::parse_recompute(words);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message(""), "accepted");
  EXPECT_EQ(message(" norm , gather:3"), "accepted");
  EXPECT_EQ(
      message("norms"),
      "'norms' is nothing to recompute, accepted: norm, activation, gather, mla_up, attention, router, permute, "
      "expert_up, shared, mlp, moe, layer, light, medium, full, did you mean 'norm'?");
  for (const char* range :
       {"norm:", "norm:3-1", "norm:-1", "norm:1-", "norm:x", "norm:1-2-3", "norm:99999999999"}) {
    EXPECT_EQ(message(range), fmt::format("'{}' is no range of layers, accepted: 'norm:3' or 'norm:0-3'", range));
  }
  EXPECT_NE(message("norm,"), "accepted");
}

}  // namespace
}  // namespace heddle::test

// What the backward makes again against what it kept: the same bits of every gradient, statistic and state, in any
// layout and schedule; fewer bytes live at the peak, and as many as the walk foretells.
#include "heddle/passes/recompute.h"

#include <gtest/gtest.h>

#include "heddle/passes/op_groups.h"
#include "tests/runtime/kept_bits.h"

namespace heddle::test {
namespace {

plan::Plan plan_for_recompute(const plan::Degrees& mesh, const std::string& words,
                              const std::string& schedule = "1f1b") {
  plan::Plan plan = plan_of_four(mesh, schedule);
  plan.memory.recompute = passes::recompute_groups(words);
  return plan;
}

int replays(const model::ModelConfig& c, const plan::Plan& plan, ir::Phase phase) {
  int count = 0;
  for (const ir::Listing& listing : plan::lower(c, plan).program.listings) {
    for (const ir::Op& op : listing.ops) count += op.again && op.phase == phase ? 1 : 0;
  }
  return count;
}

std::vector<std::string> all_words_recompute() {
  std::vector<std::string> words;
  for (const passes::GroupWord& word : passes::group_words()) words.push_back(word.name);
  words.push_back("norm,gather,mla_up,attention,medium");
  words.push_back("full>1");  // only where more rows come than their even share
  words.push_back("activation>0.9,expert_up>1.1,permute>1.05,norm");
  return words;
}

class Recompute : public testing::TestWithParam<std::string> {};
std::string name_of_words(const testing::TestParamInfo<std::string>& info) {
  const bool several = info.param.find(',') != std::string::npos,
             limits = info.param.find('>') != std::string::npos;
  return (several ? "several" : info.param.substr(0, info.param.find('>'))) + (limits ? "_above" : "");
}
INSTANTIATE_TEST_SUITE_P(Words, Recompute, testing::ValuesIn(all_words_recompute()), name_of_words);

TEST_P(Recompute, OneRankKeepsEveryBit) {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    plan::Plan plan = plan_for_recompute({}, GetParam());
    plan.dtype = dtype;
    expect_same_bits(small(), plan, dtype == Dtype::f64 ? "reference" : "host");
  }
  plan::Plan unfused = plan_for_recompute({}, GetParam());
  unfused.fusions.clear();
  expect_same_bits(small(0), unfused, "reference");
  if (GetParam() == "gather" || GetParam() == "full>1") return;  // all rows are the rank's own, as many as ever
  const plan::Plan plan = plan_for_recompute({}, GetParam());
  EXPECT_GT(replays(small(), plan, ir::Phase::I) + replays(small(), plan, ir::Phase::W), 0);
}

TEST_P(Recompute, LayoutsKeepEveryBit) {
  for (const char* context : {"gather", "ulysses", "ring"}) {
    plan::Plan plan = plan_for_recompute({.tp = 2, .cp = 2}, GetParam());
    plan.parallel.context = from_word<model::Context>(context);
    expect_same_bits(small(), plan, "reference");
  }
  for (const model::Context context : {model::Context::hybrid, model::Context::double_ring}) {
    plan::Plan runs = plan_for_recompute({.cp = 4}, GetParam());
    runs.parallel.context = context;
    expect_same_bits(small(), runs, "reference");
  }
  expect_same_bits(small(), plan_for_recompute({.tp = 2, .dp = 2, .ep = 2, .etp = 2}, GetParam()), "reference");
  plan::Plan merged = plan_for_recompute({.dp = 4, .ep = 4}, GetParam());
  merged.parallel.exchange.topology = ir::Topology::merge;
  expect_same_bits(small(), merged, "reference");
}

TEST_P(Recompute, SchedulesKeepEveryBit) {
  for (const std::string schedule : {"1f1b", "zb_h1", "dual_pipe_v"}) {
    expect_same_bits(small(), plan_for_recompute({.dp = 2, .pp = 2, .ep = 2}, GetParam(), schedule), "reference");
  }
}

TEST_P(Recompute, FurtherTokensKeepEveryBit) {
  model::ModelConfig c = small();
  c.num_nextn_predict_layers = 2;
  c.tie_word_embeddings = true;
  expect_same_bits(c, plan_for_recompute({.tp = 2}, GetParam()), "reference");
}

// Heads that share keys and values: a word that speaks of latents means what queries and keys are made of here.
TEST_P(Recompute, GroupedAttentionKeepsEveryBit) {
  expect_same_bits(small_grouped(), plan_for_recompute({.tp = 2}, GetParam()), "reference");
  plan::Plan ring = plan_for_recompute({.cp = 2}, GetParam());
  ring.parallel.context = model::Context::ring;
  expect_same_bits(small_grouped(), ring, "reference");
  if (GetParam() == "gather" || GetParam() == "shared" || GetParam() == "full>1") return;  // none to make again
  const plan::Plan plan = plan_for_recompute({}, GetParam());
  EXPECT_GT(replays(small_grouped(), plan, ir::Phase::I) + replays(small_grouped(), plan, ir::Phase::W), 0);
}

// The walk without streams foretells the peak of the run, and it is lower.
TEST_P(Recompute, ThePeakIsPredictedToTheByte) {
  const model::ModelConfig c = small();
  for (const plan::Degrees& mesh :
       std::vector<plan::Degrees>{{}, {.tp = 2, .dp = 2, .ep = 4}, {.cp = 2, .pp = 2}}) {
    const plan::Plan plan = plan_for_recompute(mesh, GetParam());
    expect_peak_as_predicted(c, plan);
  }
}

TEST(RecomputePeak, FallsWithEachLevel) {
  model::ModelConfig c = small();
  c.num_hidden_layers = 8;
  plan::Plan plan = plan_for_recompute({}, "");
  plan.sequences = 16;
  std::vector<int64_t> peaks;
  for (const char* words : {"", "light", "medium", "full", "norm,mla_up,attention,mlp,full", "layer"}) {
    plan.memory.recompute = passes::recompute_groups(words);
    peaks.push_back(predicted_peak(c, plan));
  }
  for (size_t i = 1; i < peaks.size(); ++i) EXPECT_LT(peaks[i], peaks[i - 1]) << "level " << i;
  EXPECT_LT(peaks.back() * 2, peaks.front());
}

// A layer that is made again leaves its input and small things: what is live grows by little more with each layer.
TEST(RecomputePeak, ALayerLeavesItsInput) {
  model::ModelConfig c = small();
  plan::Plan plan = plan_for_recompute({}, "layer");
  plan.dtype = Dtype::f32;
  plan.sequences = 16;
  c.num_hidden_layers = 6;
  const int64_t six = predicted_peak(c, plan);
  c.num_hidden_layers = 16;
  const int64_t a_layer = (predicted_peak(c, plan) - six) / 10;
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
  plan::Plan plan = plan_for_recompute({.pp = 2}, "layer", "zb_h1");
  EXPECT_GT(replays(c, plan, ir::Phase::W), 0);
  const int64_t split = predicted_peak(c, plan);
  plan.memory.recompute.clear();
  EXPECT_LT(split, predicted_peak(c, plan));
  plan.memory.recompute = passes::recompute_groups("layer");
  plan.parallel.schedule = "1f1b";
  EXPECT_LT(replays(c, plan, ir::Phase::W), replays(c, plan, ir::Phase::I));
}

TEST(RecomputeText, OnlyTheNamedLayers) {
  const auto layers = [](const std::string& words) {
    std::set<int> found;
    const plan::Lowered lowered = plan::lower(small(), plan_for_recompute({}, words));
    for (const ir::Op& op : lowered.program.listings[0].ops) {
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

// Even shares are what a rank gets of 2 x 16 tokens with 2 choices each.
TEST(RecomputeText, LimitsAreInEvenShares) {
  const plan::Plan plan = plan_for_recompute({.dp = 2, .ep = 2}, "activation:1>0.75, expert_up:1>1.5, permute:1>2");
  const ir::StepProgram program = plan::lower(small(), plan).program;
  const ir::Listing& listing = program.listings[0];
  const int64_t even = plan.sequences * plan.sequence_length * small().num_experts_per_tok;
  std::map<std::string, std::set<std::pair<std::string, int64_t>>> conditions;  // kind -> counted by, limit
  std::map<std::string, int> drops;
  for (const ir::Op& op : listing.ops) {
    if (!op.condition) continue;
    const std::string counted = listing.value(op.condition.rows_of).name;
    conditions[std::string(op.kind())].insert({counted.substr(0, counted.find('.', 2)), op.condition.limit});
    EXPECT_TRUE(op.condition.more);
    EXPECT_EQ(op.layer, 1);
    if (op.def->drops) {
      EXPECT_EQ(op.phase, ir::Phase::F);
      ++drops[listing.value(op.in[0]).name];
    } else {
      EXPECT_TRUE(op.again);
      EXPECT_GT(op.phase, ir::Phase::F);
    }
  }
  using Found = std::set<std::pair<std::string, int64_t>>;
  EXPECT_EQ(conditions["swiglu"], (Found{{"1.n", even * 3 / 4}}));
  EXPECT_EQ(conditions["grouped_linear"], (Found{{"1.n", even * 3 / 2}}));
  EXPECT_EQ(conditions["dispatch"], (Found{{"1.most", even * 2}}));  // by all ranks or by none
  EXPECT_EQ(drops.size(), 3u);
  for (const auto& [name, count] : drops) EXPECT_EQ(count, 1) << name;
}

// As many rows as come are kept up to the limit; beyond it less is, however many come.
TEST(RecomputePeak, ALimitBoundsWhatIsKept) {
  model::ModelConfig c = small();
  c.num_hidden_layers = 8;
  plan::Plan plan = plan_for_recompute({.dp = 2, .ep = 2}, "");
  plan.sequences = 16;
  const auto peak = [&](const std::string& words, int64_t rows) {
    plan.memory.recompute = passes::recompute_groups(words);
    const ir::StepProgram program = plan::lower(c, plan).program;
    simulate::RecordOptions options;
    options.rows = [&](int, const ir::Issue&, size_t output) { return output == 0 || output == 4 ? rows : 0; };
    const simulate::Recording recording = simulate::record(program, 0, options);
    return recording.peak_live_bytes;
  };
  const int64_t even = plan.sequences * plan.sequence_length * c.num_experts_per_tok;
  const std::string limited = "permute>1.2,expert_up>1.2";
  EXPECT_NEAR(static_cast<double>(peak(limited, even)) / static_cast<double>(peak("", even)), 1, 0.01);
  EXPECT_LT(peak(limited, 2 * even), peak(limited, even));
  EXPECT_LT(2 * (peak(limited, 4 * even) - peak(limited, 2 * even)), peak("", 4 * even) - peak("", 2 * even));
}

TEST(RecomputeText, NothingThatChoosesRunsTwice) {
  for (const plan::Degrees& mesh : std::vector<plan::Degrees>{{}, {.dp = 2, .ep = 2}}) {
    for (const ir::Listing& listing : plan::lower(small(), plan_for_recompute(mesh, "layer")).program.listings) {
      for (const ir::Op& op : listing.ops) EXPECT_TRUE(!op.again || op.def->replayable) << op.kind();
    }
  }
}

TEST(RecomputeText, Refusals) {
  const auto message = [](const std::string& words) -> std::string {
    try {
      passes::parse_groups(words, "recompute");
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
      "expert_up, shared, mlp, moe, layer, light, medium, full, zero_memory_level0, zero_memory_level1, did you "
      "mean 'norm'?");
  for (const char* range :
       {"norm:", "norm:3-1", "norm:-1", "norm:1-", "norm:x", "norm:1-2-3", "norm:99999999999"}) {
    EXPECT_EQ(message(range), fmt::format("'{}' is no range of layers, accepted: 'norm:3' or 'norm:0-3'", range));
  }
  EXPECT_NE(message("norm,"), "accepted");
  EXPECT_EQ(message("full>1.25, expert_up:2 > 0.5"), "accepted");
  EXPECT_EQ(passes::text_of(passes::parse_groups("full:0-3 > 1.25", "recompute")), "full:0-3>1.25");
  for (const char* limit : {"full>", "full>0", "full>-1", "full>x", "full>1e9", "full>nan", "full>1>2"}) {
    EXPECT_EQ(message(limit),
              fmt::format("'{}' is no limit of rows, accepted: a number above 0, as in 'full>1.25'", limit));
  }
}

}  // namespace
}  // namespace heddle::test

// Values that wait for the backward on the host against those that stay: the same bits of every gradient, statistic
// and state, in any layout and schedule; fewer bytes live on the device, and as many as the walk foretells.
#include "heddle/passes/host/offload.h"

#include "heddle/passes/op_groups.h"
#include "heddle/passes/recompute.h"
#include "tests/runtime/kept_bits.h"

namespace heddle::test {
namespace {

plan::Plan plan_for_offload(const plan::Degrees& mesh, const std::string& words,
                            const std::string& schedule = "1f1b") {
  plan::Plan plan = plan_of_four(mesh, schedule);
  plan.memory.offload = passes::offload_groups(words);
  return plan;
}

// Copies take no time, so that all that was chosen goes, or so long that nothing does.
passes::Durations copies_last(double us) {
  return [us](const ir::Listing&, const ir::Op& op) { return op.kind().starts_with("copy_") ? us : 1.0; };
}

int count(const ir::StepProgram& program, std::string_view kind, bool ahead = false) {
  int found = 0;
  for (const ir::Listing& listing : program.listings) {
    for (const ir::Op& op : listing.ops) found += op.kind() == kind && (!ahead || op.ahead) ? 1 : 0;
  }
  return found;
}

std::vector<std::string> all_words() {
  std::vector<std::string> words{passes::kLayerInput, "input,layer"};
  for (const passes::GroupWord& word : passes::group_words()) words.push_back(word.name);
  return words;
}

class Offload : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Words, Offload, testing::ValuesIn(all_words()), [](const auto& info) {
  return info.param.find(',') == std::string::npos ? info.param : std::string("everything");
});

TEST_P(Offload, OneRankKeepsEveryBit) {
  for (const Dtype dtype : {Dtype::f64, Dtype::bf16}) {
    plan::Plan plan = plan_for_offload({}, GetParam());
    plan.dtype = dtype;
    plan.durations = copies_last(0);
    expect_same_bits(small(), plan, dtype == Dtype::f64 ? "reference" : "host");
    if (GetParam() != "gather") {
      EXPECT_GT(count(plan::lower(small(), plan).program, "copy_out"), 0);
    }
  }
  plan::Plan unfused = plan_for_offload({}, GetParam());
  unfused.fusions.clear();
  expect_same_bits(small(0), unfused, "reference");
}

TEST_P(Offload, GroupedAttentionKeepsEveryBit) {
  plan::Plan plan = plan_for_offload({}, GetParam());
  plan.durations = copies_last(0);
  expect_same_bits(small_grouped(), plan, "reference");
}

TEST_P(Offload, LayoutsKeepEveryBit) {
  for (const char* context : {"gather", "ring"}) {
    plan::Plan plan = plan_for_offload({.tp = 2, .cp = 2}, GetParam());
    plan.parallel.context = from_word<model::Context>(context);
    expect_same_bits(small(), plan, "reference");
  }
  plan::Plan merged = plan_for_offload({.dp = 4, .ep = 4}, GetParam());
  merged.parallel.exchange.topology = ir::Topology::merge;
  expect_same_bits(small(), merged, "reference");
}

TEST_P(Offload, SchedulesKeepEveryBit) {
  for (const std::string schedule : {"1f1b", "zb_h1", "interleaved", "dual_pipe_v"}) {
    plan::Plan plan = plan_for_offload({.dp = 2, .pp = 2, .ep = 2}, GetParam(), schedule);
    expect_same_bits(small(), plan, "reference");
    plan.durations = copies_last(0);
    expect_same_bits(small(), plan, "reference");
  }
}

TEST_P(Offload, WhatIsMadeAgainReadsWhatCameBack) {
  plan::Plan plan = plan_for_offload({.pp = 2}, GetParam());
  plan.memory.recompute =
      passes::recompute_groups(GetParam() == "layer" || GetParam() == "moe" ? "norm,activation" : "layer");
  expect_same_bits(small(), plan, "reference");
}

TEST(OffloadPeak, IsPredictedToTheByte) {
  for (const plan::Degrees& mesh :
       std::vector<plan::Degrees>{{}, {.tp = 2, .dp = 2, .ep = 4}, {.cp = 2, .pp = 2}}) {
    for (const char* words : {"input", "input,layer", "expert_up"}) {
      expect_peak_as_predicted(small(), plan_for_offload(mesh, words));
    }
  }
}

// With copies that are fast beside the computation the device holds a fraction: what the layer at work needs.
TEST(OffloadPeak, FallsToTheLayersAtWork) {
  model::ModelConfig c = small();
  c.num_hidden_layers = 12;
  plan::Plan plan = plan_for_offload({}, "");
  plan.sequences = 16;
  const int64_t kept = predicted_peak(c, plan);
  plan.durations = copies_last(0.2);
  plan.memory.offload = passes::offload_groups("expert_up");
  const int64_t some = predicted_peak(c, plan);
  plan.memory.offload = passes::offload_groups("input,layer");
  const int64_t all = predicted_peak(c, plan);
  EXPECT_LT(some, kept);
  EXPECT_LT(all * 3, kept);
}

// The bandwidth decides how much goes: slower copies, fewer of them.
TEST(OffloadPeak, WhatIsTooSlowStays) {
  model::ModelConfig c = small();
  c.num_hidden_layers = 8;
  plan::Plan plan = plan_for_offload({}, "input,layer");
  int before = std::numeric_limits<int>::max();
  for (const double us : {0.1, 2.0, 8.0, 1e6}) {
    plan.durations = copies_last(us);
    const ir::StepProgram program = plan::lower(c, plan).program;
    EXPECT_LT(count(program, "copy_out"), before);
    EXPECT_EQ(count(program, "copy_out"), count(program, "copy_in"));
    before = count(program, "copy_out");
  }
  EXPECT_EQ(before, 0);
}

// Copies that must begin before the backward does stand one action earlier, where there is one.
TEST(OffloadPeak, CopiesGoAheadWhereTheScheduleHasRoom) {
  plan::Plan plan = plan_for_offload({.pp = 2}, "input,layer");
  plan.durations = copies_last(0.5);
  const plan::Lowered lowered = plan::lower(small(), plan);
  const auto ahead = [&](int r) {
    int found = 0;
    for (const ir::Op& op : lowered.program.listings[static_cast<size_t>(r)].ops) found += op.ahead;
    return found;
  };
  EXPECT_GT(ahead(0), 0);
  EXPECT_EQ(ahead(1), 0);  // on the last rank each backward follows its forward
  int fetches = 0;
  const std::vector<ir::Action>& actions = lowered.program.actions_of(0);
  for (size_t i = 0; i < actions.size(); ++i) {
    const ir::Block& block = lowered.program.blocks[static_cast<size_t>(actions[i].block)];
    if (!block.name.starts_with("fetch_I")) continue;
    ++fetches;
    const ir::Block& next = lowered.program.blocks[static_cast<size_t>(actions[i + 1].block)];
    EXPECT_TRUE(next.name.starts_with("F") || next.name.starts_with("IW") || next.name.starts_with("receive"))
        << next.name;
  }
  EXPECT_EQ(fetches, plan.microbatches);
}

TEST(OffloadText, OnlyTheNamedLayers) {
  const auto layers = [](const std::string& words) {
    std::set<std::string> found;
    plan::Plan plan = plan_for_offload({}, words);
    plan.durations = copies_last(0);
    const plan::Lowered lowered = plan::lower(small(), plan);
    const ir::Listing& listing = lowered.program.listings[0];
    for (const ir::Op& op : listing.ops) {
      if (op.kind() == "copy_out") found.insert(listing.value(op.in[0]).name);
    }
    return found;
  };
  EXPECT_EQ(layers("input:1-2").size(), 2U);
  for (const std::string& name : layers("attention:2")) EXPECT_TRUE(name.starts_with("2.")) << name;
  EXPECT_FALSE(layers("attention:2").empty());
  EXPECT_TRUE(layers("moe:0").empty());
}

}  // namespace
}  // namespace heddle::test

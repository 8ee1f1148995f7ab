// Weights and sums of gradients on the host against those on the device: the same bits of every gradient, statistic
// and state, in any layout and schedule; as many bytes as the walk foretells, and fewer on the device.
#include "heddle/ir/verify/verify.h"
#include "heddle/passes/host/offload.h"
#include "heddle/passes/host/residency_words.h"
#include "heddle/passes/recompute.h"
#include "tests/runtime/kept_bits.h"

namespace heddle::test {
namespace {

plan::Plan plan_for_resident(const plan::Degrees& mesh, const std::string& weights, const std::string& gradients,
                             const std::string& schedule = "1f1b") {
  plan::Plan plan = plan_of_four(mesh, schedule);
  plan.memory.weights = passes::residency_groups(weights);
  plan.memory.gradients = passes::residency_groups(gradients);
  return plan;
}

passes::Durations copies_last_resident(double us) {
  return [us](const ir::Listing&, const ir::Op& op) { return op.kind().starts_with("copy_") ? us : 1.0; };
}

int count_resident(const ir::Listing& listing, std::string_view kind, ir::Phase phase) {
  return static_cast<int>(std::count_if(listing.ops.begin(), listing.ops.end(),
                                        [&](const ir::Op& op) { return op.kind() == kind && op.phase == phase; }));
}

struct Words {
  const char *name, *weights, *gradients;
};
class Resident : public testing::TestWithParam<Words> {};
INSTANTIATE_TEST_SUITE_P(Words, Resident,
                         testing::Values(Words{"weights", "all", ""}, Words{"gradients", "", "all"},
                                         Words{"both", "all", "all"},
                                         Words{"some", "experts, 0, head", "attention, embedding"},
                                         Words{"automatic", "auto", "auto"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Resident, OneRankKeepsEveryBit) {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    plan::Plan plan = plan_for_resident({}, GetParam().weights, GetParam().gradients);
    plan.dtype = dtype;
    expect_same_bits(small(), plan, dtype == Dtype::f64 ? "reference" : "host");
    plan.durations = copies_last_resident(0.1);
    expect_same_bits(small(), plan, dtype == Dtype::f64 ? "reference" : "host");
  }
  plan::Plan unfused = plan_for_resident({}, GetParam().weights, GetParam().gradients);
  unfused.fusions.clear();
  expect_same_bits(small(0), unfused, "reference");
}

TEST_P(Resident, LayoutsKeepEveryBit) {
  expect_same_bits(small(), plan_for_resident({.tp = 2, .cp = 2}, GetParam().weights, GetParam().gradients),
                   "reference");
  plan::Plan merged = plan_for_resident({.dp = 4, .ep = 4}, GetParam().weights, GetParam().gradients);
  merged.parallel.exchange.topology = ir::Topology::merge;
  expect_same_bits(small(), merged, "reference");
}

TEST_P(Resident, SchedulesKeepEveryBit) {
  for (const std::string schedule : {"1f1b", "zb_h1", "interleaved", "dual_pipe_v", "gpipe"}) {
    plan::Plan plan =
        plan_for_resident({.dp = 2, .pp = 2, .ep = 2}, GetParam().weights, GetParam().gradients, schedule);
    expect_same_bits(small(), plan, "reference");
    for (const double us : {0.2, 3.0}) {
      plan.durations = copies_last_resident(us);
      expect_same_bits(small(), plan, "reference");
    }
  }
}

TEST_P(Resident, BesideOtherPassesKeepsEveryBit) {
  plan::Plan plan = plan_for_resident({.pp = 2}, GetParam().weights, GetParam().gradients);
  plan.memory.recompute = passes::recompute_groups("layer");
  plan.memory.offload = passes::offload_groups("input");
  plan.durations = copies_last_resident(0.2);
  expect_same_bits(small(), plan, "reference");
}

TEST(ResidentPeak, IsPredictedToTheByte) {
  for (const plan::Degrees& mesh :
       std::vector<plan::Degrees>{{}, {.tp = 2, .dp = 2, .ep = 4}, {.cp = 2, .pp = 2}}) {
    expect_peak_as_predicted(small(), plan_for_resident(mesh, "all", "all"));
    expect_peak_as_predicted(small(), plan_for_resident(mesh, "experts", ""));
  }
}

// What leaves the device is on the host, byte for byte; the more layers, the less is left here.
TEST(ResidentPeak, FallsWithEveryLayer) {
  model::ModelConfig c = small();
  c.num_hidden_layers = 12;
  struct Bytes {
    int64_t peak, persistent, there;
  };
  const auto bytes = [&](const std::string& words) {
    const ir::StepProgram program = plan::lower(c, plan_for_resident({}, words, words)).program;
    const simulate::Recording recording = simulate::record(program, 0, {});
    return Bytes{recording.peak_live_bytes, recording.persistent_bytes, recording.host_peak_live_bytes};
  };
  const Bytes kept = bytes("");
  Bytes before = kept;
  for (const char* words : {"0-2", "0-5", "0-11", "all"}) {
    const Bytes now = bytes(words);
    EXPECT_LT(now.peak, before.peak) << words;
    EXPECT_EQ(now.persistent + now.there, kept.persistent) << words;
    before = now;
  }
  EXPECT_LT(before.peak * 4, kept.peak * 3);  // masters and moments stay
}

// The bandwidth decides how much of "auto" goes.
TEST(ResidentPeak, WhatIsTooSlowStays) {
  model::ModelConfig c = small();
  c.num_hidden_layers = 8;
  plan::Plan plan = plan_for_resident({}, "auto", "auto");
  int before = std::numeric_limits<int>::max();
  for (const double us : {0.1, 4.0, 30.0, 1e6}) {
    plan.durations = copies_last_resident(us);
    const ir::StepProgram program = plan::lower(c, plan).program;
    const ir::Listing& listing = program.listings[0];
    const int copies = count_resident(listing, "copy_in", ir::Phase::F) +
                       count_resident(listing, "copy_in", ir::Phase::I) +
                       count_resident(listing, "copy_in", ir::Phase::W);
    EXPECT_LT(copies, before) << us;
    before = copies;
  }
  EXPECT_EQ(before, 0);
}

// A microbatch's copies of a sum: all but the first of a step bring it.
TEST(ResidentTraffic, TheFirstMicrobatchBringsNoSum) {
  const auto moved = [](int microbatches) {
    plan::Plan plan = plan_for_resident({}, "", "experts");
    plan.microbatches = microbatches;
    const ir::StepProgram program = plan::lower(small(), plan).program;
    simulate::RecordOptions options;
    const simulate::Recording recording = simulate::record(program, 0, options);
    return std::pair(recording.copied_in_bytes, recording.copied_out_bytes);
  };
  const auto [in_one, out_one] = moved(1);
  const auto [in_two, out_two] = moved(2);
  const auto [in_three, out_three] = moved(3);
  EXPECT_EQ(in_three - in_two, in_two - in_one);
  EXPECT_EQ(out_two, 2 * out_one);
  EXPECT_EQ(in_two - in_one, out_one);  // each further one brings and takes all sums
  EXPECT_EQ(in_one, 2 * out_one);       // what the end reads: for the norm, and for the update
}

// A sum must not be fetched before the microbatch before it has kept it.
TEST(ResidentOrder, SumsAreFetchedBehindThoseThatKeptThem) {
  plan::Plan plan = plan_for_resident({}, "", "all");
  plan.durations = copies_last_resident(3);
  ir::StepProgram program = plan::lower(small(), plan).program;
  std::vector<ir::Action>& actions = program.actions[0][0];
  const auto name = [&](size_t i) { return program.blocks[static_cast<size_t>(actions[i].block)].name; };
  size_t fetch = actions.size(), kept = 0;
  for (size_t i = 0; i < actions.size() && fetch == actions.size(); ++i) {
    if (name(i).starts_with("IW")) kept = i;
    if (name(i).starts_with("fetch_W") && actions[i].microbatches[0] == 1) fetch = i;
  }
  ASSERT_LT(fetch, actions.size());
  ASSERT_LT(kept, fetch);
  ir::verify(program);
  std::rotate(actions.begin() + static_cast<std::ptrdiff_t>(kept),
              actions.begin() + static_cast<std::ptrdiff_t>(fetch),
              actions.begin() + static_cast<std::ptrdiff_t>(fetch) + 1);
  EXPECT_THROW(ir::verify(program), InternalError);
}

}  // namespace
}  // namespace heddle::test

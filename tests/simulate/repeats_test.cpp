// A walk that passes over what repeats ends in the state of one that goes through all of it, and its curves have
// the same peaks.
#include "heddle/ir/walk/repeats.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/passes/host/offload.h"
#include "heddle/runtime/memory_curves.h"
#include "heddle/runtime/predict.h"
#include "heddle/simulate/curve_builder.h"
#include "tests/simulate/tiny_step.h"

namespace heddle::test {
namespace {

using simulate::CurveBuilder;
using simulate::MemoryCurve;

constexpr int kMicrobatches = 96;

// Answers every microbatch alike, draws the walk by the number of ops, and keeps the places of all operands.
class Drawing : public ir::Issuer, public ir::Walk::Watcher {
 public:
  Drawing(const ir::StepProgram& program, int rank, size_t places = 1 << 17, size_t events = 1 << 18)
      : builder(program, rank, places, events) {}

  int64_t scratch_bytes(int, uint32_t op, const ir::RowCounts&) override { return 100 * (op % 7); }
  int64_t read_rows(const ir::Issue&, size_t output) override { return 9 + static_cast<int64_t>(output); }
  void issue(const ir::Issue& issue) override {
    ++ops;
    for (const auto& operands : {issue.in, issue.out, issue.updates})
      for (const ir::Operand& operand : operands) offsets.push_back(operand.offset);
    offsets.push_back(issue.scratch_offset);
    for (const ir::Wait& wait : issue.waits) offsets.push_back(static_cast<int64_t>(wait.count));
  }
  void placed(int listing, ir::ValueId id, int microbatch, int64_t bytes) override {
    builder.changes(listing, id, microbatch, bytes);
  }
  void released(int listing, ir::ValueId id, int microbatch, int64_t bytes) override {
    builder.changes(listing, id, microbatch, -bytes);
  }
  void issued(const ir::Issue& issue) override {
    builder.begins(issue.listing, issue.op_index, issue.microbatch, now++);
  }
  void began_cycle() override {
    cycle = now;
    builder.began_cycle();
  }
  void repeated(int64_t times, int microbatches) override {
    const double each = now - cycle;
    builder.repeated(times, microbatches, each);
    now += static_cast<double>(times) * each;
  }

  CurveBuilder builder;
  int64_t ops = 0;
  double now = 0, cycle = 0;
  std::vector<int64_t> offsets;
};

void expect_one_peak(const std::vector<MemoryCurve>& found, const std::vector<MemoryCurve>& whole) {
  ASSERT_EQ(found.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    const simulate::MemoryPeak &a = found[i].peak, &b = whole[i].peak;
    EXPECT_EQ(a.bytes, b.bytes);
    EXPECT_EQ(a.at_us, b.at_us);
    EXPECT_EQ(a.of_kinds, b.of_kinds);
    EXPECT_EQ(std::tuple(a.op, a.phase, a.layer, a.microbatch), std::tuple(b.op, b.phase, b.layer, b.microbatch));
    ASSERT_EQ(a.values.size(), b.values.size());
    for (size_t v = 0; v < b.values.size(); ++v) {
      EXPECT_EQ(a.values[v].name, b.values[v].name);
      EXPECT_EQ(a.values[v].microbatch, b.values[v].microbatch);
      EXPECT_EQ(a.values[v].bytes, b.values[v].bytes);
    }
    ASSERT_EQ(a.microbatches.size(), b.microbatches.size());
    for (size_t m = 0; m < b.microbatches.size(); ++m) {
      EXPECT_EQ(a.microbatches[m].microbatch, b.microbatches[m].microbatch);
      EXPECT_EQ(a.microbatches[m].bytes, b.microbatches[m].bytes);
    }
    EXPECT_EQ(found[i].most, whole[i].most);
    EXPECT_EQ(found[i].until_us, whole[i].until_us);
    EXPECT_TRUE(std::is_sorted(found[i].at_us.begin(), found[i].at_us.end()));
  }
}

// Returns the share of the step's ops that were issued.
double expect_the_same(const plan::Lowered& lowered, int rank, int64_t capacity) {
  ir::Walk whole(lowered.program, rank, capacity), skips(lowered.program, rank, capacity);
  skips.skip_repeats = true;
  double share = 0;
  for (int step = 0; step < 2; ++step) {
    Drawing all(lowered.program, rank), few(lowered.program, rank);
    whole.watcher = &all;
    skips.watcher = &few;
    whole.run_step(all);
    skips.run_step(few);
    share = static_cast<double>(few.ops) / static_cast<double>(all.ops);
    for (int i = 0; i < ir::kSpaces; ++i) {
      const ir::Storage &a = skips.storage(static_cast<ir::Space>(i)),
                        &b = whole.storage(static_cast<ir::Space>(i));
      EXPECT_EQ(a.reserved_bytes(), b.reserved_bytes());
      EXPECT_EQ(a.peak_live_bytes(), b.peak_live_bytes());
      EXPECT_EQ(a.clock(), b.clock());
    }
    EXPECT_EQ(skips.issued(), whole.issued());
    EXPECT_EQ(skips.ended(), whole.ended());
    EXPECT_EQ(skips.copied_out_bytes(), whole.copied_out_bytes());
    EXPECT_EQ(skips.copied_in_bytes(), whole.copied_in_bytes());
    expect_one_peak(few.builder.curves(few.now), all.builder.curves(all.now));
  }
  // Where the next step lies says whether all else is the same.
  Drawing after_whole(lowered.program, rank), after_skips(lowered.program, rank);
  skips.skip_repeats = false;
  whole.watcher = skips.watcher = nullptr;
  whole.run_step(after_whole);
  skips.run_step(after_skips);
  EXPECT_TRUE(after_whole.offsets == after_skips.offsets);
  return share;
}

TEST(Repeats, EndAsTheWholeWalkDoes) {
  model::ModelConfig config = tiny_model();
  config.num_hidden_layers = 4;
  for (const char* schedule : {"1f1b", "zb_h1", "interleaved", "dual_pipe_v", "gpipe"}) {
    for (const auto& [pipeline, experts] : {std::pair{1, 1}, {2, 2}, {1, 4}}) {
      if (pipeline == 1 && std::string_view(schedule) != "1f1b") continue;
      for (const char* offload : {"", "input,layer"}) {
        SCOPED_TRACE(fmt::format("{} pp {} ep {} offload '{}'", schedule, pipeline, experts, offload));
        plan::Plan plan = tiny_plan(pipeline, experts, true, kMicrobatches);
        plan.parallel.schedule = schedule;
        plan.memory.offload = passes::offload_groups(offload);
        const plan::Lowered lowered = plan::lower(config, plan);
        for (int rank = 0; rank < plan.ranks(); rank += plan.mesh.stage_ranks()) {
          const double share = expect_the_same(lowered, rank, 0);
          if (plan.ranks() == 1 && !*offload) {  // what several streams free need not come to lie as before
            EXPECT_LT(share, 0.5);
          }
          const int64_t peak = runtime::predict_memory(lowered.program, rank, "reference").peak_live_bytes;
          expect_the_same(lowered, rank, ir::storage_bytes(peak + peak / 2));
        }
      }
    }
  }
}

TEST(Repeats, ThoseThatGrowAreNotFound) {
  ir::WalkState a, b;
  a.clock_now = b.clock_now = {1000};
  a.issued[0] = 100;
  b.issued[0] = 150;
  b.clock_now[0] = 1200;
  a.marks = {{{90}}, {{20}}};
  b.marks = {{{140}}, {{20}}};
  a.clocks = {{0, 950}, {0, 10}};
  b.clocks = {{0, 1150}, {0, 10}};
  EXPECT_TRUE(a.repeats_in(b, 64));
  EXPECT_FALSE(a.repeats_in(b, 995)) << "what stays settles later";
  b.marks[0][0] = 139;
  EXPECT_FALSE(a.repeats_in(b, 64)) << "neither stays nor moves on";
  b.marks[0][0] = 140;
  a.marks[1][0] = b.marks[1][0] = 90;
  EXPECT_FALSE(a.repeats_in(b, 64)) << "what stays was not used before all that moves";
  a.marks[1][0] = b.marks[1][0] = 20;
  a.exact = {1};
  b.exact = {2};
  EXPECT_FALSE(a.repeats_in(b, 64));
}

TEST(Repeats, ActionsOfTheSteadyState) {
  std::vector<ir::Action> actions{{0, {0}}, {0, {1}}, {0, {2}}};
  for (int m = 0; m < 40; ++m) {
    actions.push_back({1, {m}});
    if (m + 3 < 40) actions.push_back({0, {m + 3}});
  }
  actions.push_back({2, {-1}});
  const ir::RepeatedActions found = ir::repeated_actions(actions);
  EXPECT_EQ(found.begin, 2u);
  EXPECT_EQ(found.period, 2u);
  EXPECT_EQ(found.times, 38u);
  EXPECT_EQ(found.microbatches, 1);
  EXPECT_EQ(ir::least_microbatch(actions, 3), 0);
  EXPECT_EQ(ir::least_microbatch(actions, actions.size() - 2), 39);
  actions.resize(20);
  EXPECT_EQ(ir::repeated_actions(actions).period, 0u) << "too few times";
}

// Loads of later microbatches go where those of earlier ones lay.
TEST(Repeats, TheArenaDoesNotGrowWithTheMicrobatches) {
  const auto reserved = [](int microbatches) {
    const plan::Lowered lowered = plan::lower(tiny_model(), tiny_plan(1, 1, true, microbatches));
    return runtime::predict_memory(lowered.program, 0, "reference").reserved_bytes;
  };
  EXPECT_EQ(reserved(200), reserved(8));
}

TEST(Repeats, ALongStepIsDrawnAtSoManyPlaces) {
  const plan::Lowered lowered = plan::lower(tiny_model(), tiny_plan(2, 1, true, kMicrobatches));
  std::vector<std::vector<MemoryCurve>> drawn;
  for (const bool skips : {false, true}) {
    for (const size_t places : {size_t{1} << 17, size_t{300}, size_t{7}}) {
      Drawing drawing(lowered.program, 0, places, places == 7 ? 50 : 1 << 18);
      ir::Walk walk(lowered.program, 0, 0);
      walk.skip_repeats = skips;
      walk.watcher = &drawing;
      walk.run_step(drawing);
      drawn.push_back(drawing.builder.curves(drawing.now));
      EXPECT_LE(drawn.back()[0].at_us.size(), places);
      EXPECT_GE(drawn.back()[0].at_us.size(), std::min<size_t>(places, 1000) / 4);
      expect_one_peak(drawn.back(), drawn.front());
      int64_t most = 0;
      for (const simulate::BytesOfKinds& bytes : drawn.back()[0].bytes)
        most = std::max(most, simulate::sum_of(bytes));
      EXPECT_EQ(most, drawn.back()[0].peak.bytes);
    }
  }
}

}  // namespace
}  // namespace heddle::test

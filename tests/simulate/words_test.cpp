// Parts of values, copies that update what persists, conditions and channels on their way through the walk and in
// virtual time: where things lie, who waits for whom, when they go, what a step lasts.
#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/ir/verify/verify.h"
#include "tests/simulate/hand_made.h"
#include "tests/support/hand_made_text.h"

namespace heddle::test {
namespace {

ir::StepProgram program_of(const std::vector<std::string>& texts, int microbatches = 1) {
  ir::StepProgram program;
  program.microbatches = microbatches;
  program.class_of_rank.clear();
  for (size_t r = 0; r < texts.size(); ++r) {
    program.listings.push_back(text_listing(texts[r]));
    program.class_of_rank.push_back(static_cast<int>(r));
  }
  plan::Plan plan;
  plan.microbatches = microbatches;
  for (int r = 0; r < std::ssize(texts); ++r) {  // each a pipeline of its own
    ir::StepProgram::ActionLists one;
    schedule::lower(program, one, plan::schedule_of(plan), {.first_listing = r});
    program.actions[0].push_back(one[0]);
  }
  ir::verify(program);
  return program;
}

// What the walk issued.
struct Issued {
  std::string kind;
  std::vector<int64_t> in, out, updates;  // offsets
  std::vector<std::pair<std::string, uint64_t>> waits;
  int64_t live_bytes = 0;
};

class Watcher : public ir::Issuer {
 public:
  Watcher(const ir::Walk& walk, std::vector<int64_t> rows) : walk_(walk), rows_(std::move(rows)) {}
  std::vector<Issued> issued;

  int64_t scratch_bytes(int, uint32_t, const ir::RowCounts&) override { return 0; }
  void issue(const ir::Issue& issue) override {
    Issued& one = issued.emplace_back();
    one.kind = issue.op->kind();
    for (const ir::Operand& operand : issue.in) one.in.push_back(operand.offset);
    for (const ir::Operand& operand : issue.out) one.out.push_back(operand.offset);
    for (const ir::Operand& operand : issue.updates) one.updates.push_back(operand.offset);
    for (const ir::Wait& wait : issue.waits)
      one.waits.emplace_back(walk_.streams().names()[static_cast<size_t>(wait.stream)], wait.count);
    one.live_bytes = issue.live_bytes;
  }
  int64_t read_rows(const ir::Issue&, size_t) override { return rows_[read_++ % rows_.size()]; }

 private:
  const ir::Walk& walk_;
  std::vector<int64_t> rows_;
  size_t read_ = 0;
};

std::vector<Issued> walked(const ir::StepProgram& program, std::vector<int64_t> rows = {0}) {
  ir::Walk walk(program, 0, 0);
  Watcher watcher(walk, std::move(rows));
  walk.run_step(watcher);
  return std::move(watcher.issued);
}

double step_us(const ir::StepProgram& program, int64_t rows = 0) {
  simulate::SimulationInput input;
  input.duration_us = [](int, const ir::Issue& issue) { return issue.op->attributes.number_or("us", 0); };
  input.rows = [=](int, const ir::Issue&, size_t) { return rows; };
  std::vector<int> all;
  for (int r = 0; r < std::ssize(program.class_of_rank); ++r) all.push_back(r);
  input.groups = {{"comm.tp", {all}}, {"comm.dp", {all}}};
  const simulate::Simulation s = simulate::simulate(program, input);
  EXPECT_EQ(s.deadlock, "");
  return s.step_us;
}

using Waits = std::vector<std::pair<std::string, uint64_t>>;

const std::string kPanels =
    "s\n  activation  y  f32[64, 4]\ns, F\n  no layer\n    x = source {columns 4, rows 64, us 1}\n"
    "    y.rows[0:32] = scaled x.rows[0:32] {us 10}\n    z = joined y.rows[0:32] {us 10}  comm.tp\n"
    "    y.rows[32:64] = scaled x.rows[32:64] {us 10}\n    u = joined y.rows[32:64] {us 10}  comm.tp\n"
    "    v = scaled y {us 1}\n";

TEST(Parts, LieInTheirBaseAndWaitForWhatTheyOverlap) {
  const std::vector<Issued> ops = walked(program_of({kPanels}));
  ASSERT_EQ(ops.size(), 6u);
  const int64_t half = 32 * 4 * 4;
  EXPECT_EQ(ops[1].in[0], ops[0].out[0]);
  EXPECT_EQ(ops[3].in[0], ops[0].out[0] + half);
  EXPECT_EQ(ops[3].out[0], ops[1].out[0] + half);
  EXPECT_EQ(ops[5].in[0], ops[1].out[0]);
  EXPECT_EQ(ops[2].waits, (Waits{{"compute", 2}}));  // for the first panel alone
  EXPECT_EQ(ops[3].waits, Waits{});
  EXPECT_EQ(ops[4].waits, (Waits{{"compute", 3}}));
  // The base counts once, from its first panel on; x goes once its last part was read.
  EXPECT_EQ(ops[1].live_bytes, 4 * half);
  EXPECT_EQ(ops[3].live_bytes, 4 * half);
  EXPECT_EQ(ops[4].live_bytes, 3 * half);  // y and the half that comes of joining; the one before had no reader
}

TEST(Parts, LetACommunicationRunUnderTheNextPanel) {
  EXPECT_DOUBLE_EQ(step_us(program_of({kPanels})), 1 + 10 + 10 + 10);
  const std::string whole =
      "s\ns, F\n  no layer\n    x = source {columns 4, rows 64, us 1}\n    y = scaled x {us 20}\n"
      "    z = joined y {us 20}  comm.tp\n";
  EXPECT_DOUBLE_EQ(step_us(program_of({whole})), 1 + 20 + 20);
}

// Three slots on the device through which state that lies on the host streams: loads, updates and stores of a ring.
TEST(Copies, StreamStateThroughSlots) {
  std::string text = "s\n  optimizer  m  f32[96] host\n  optimizer  slots  f32[96]\ns, end\n  no layer\n";
  for (int k = 0; k < 6; ++k) {
    const std::string of_m = fmt::format("m.elements[{}:{}]", 16 * k, 16 * k + 16);
    const std::string slot = fmt::format("slots.elements[{}:{}]", 32 * (k % 3), 32 * (k % 3) + 16);
    text +=
        fmt::format("    copy_in {0} -> {1}\n    stepped -> {1} {{us 10}}\n    copy_out {1} -> {0}\n", of_m, slot);
  }
  const ir::StepProgram program = program_of({text});
  const std::vector<Issued> ops = walked(program);
  ASSERT_EQ(ops.size(), 18u);
  EXPECT_EQ(ops[0].updates[0], ops[9].updates[0]);  // the fourth is where the first was
  EXPECT_EQ(ops[3].waits, Waits{});
  EXPECT_EQ(ops[1].waits, (Waits{{"copy_in", 1}}));
  EXPECT_EQ(ops[2].waits, (Waits{{"compute", 1}, {"copy_in", 1}}));   // which read what is stored over
  EXPECT_EQ(ops[9].waits, (Waits{{"compute", 1}, {"copy_out", 1}}));  // until the slot was stored
  ir::Walk walk(program, 0, 0);
  EXPECT_EQ(walk.persistent_bytes(), 96 * 4);
  EXPECT_EQ(walk.persistent_bytes(ir::Space::host), 96 * 4);
  Watcher watcher(walk, {0});
  walk.run_step(watcher);
  EXPECT_EQ(walk.copied_in_bytes(), 96 * 4);
  EXPECT_EQ(walk.copied_out_bytes(), 96 * 4);
  simulate::SimulationInput input;
  input.duration_us = [](int, const ir::Issue& issue) { return issue.op->attributes.number_or("us", 10); };
  EXPECT_DOUBLE_EQ(simulate::simulate(program, input).step_us, 10 * (6 + 2));  // full and empty once, else hidden
}

// What is written beside its old value and flipped with it: each step finds the two where the other left them, and
// waits for who has used them there.
TEST(Flips, ChangePlacesAndKeepWhoUsedThem) {
  std::string text =
      "s\n  optimizer  m  f32[32] host\n  optimizer  next  f32[32] host\n  optimizer  slot  f32[32]\ns, end\n"
      "  no layer\n";
  for (int k = 0; k < 2; ++k) {
    const std::string part = fmt::format(".elements[{}:{}]", 16 * k, 16 * k + 16);
    text += fmt::format(
        "    copy_in m{0} -> slot{0}\n    stepped -> slot{0} {{us 10}}\n    copy_out slot{0} -> next{0}\n", part);
  }
  const ir::StepProgram program = program_of({text + "    flip -> m, next\n"});
  ir::Walk walk(program, 0, 0);
  const ir::ValueId m = program.listings[0].find("m"), next = program.listings[0].find("next");
  const int64_t first = walk.offset_of(0, m), second = walk.offset_of(0, next);
  EXPECT_NE(first, second);
  Watcher watcher(walk, {0});
  walk.run_step(watcher);
  EXPECT_EQ(watcher.issued.size(), 6u);  // a flip runs nowhere
  EXPECT_EQ(walk.offset_of(0, m), second);
  EXPECT_EQ(walk.offset_of(0, next), first);
  walk.run_step(watcher);
  ASSERT_EQ(watcher.issued.size(), 12u);
  EXPECT_EQ(watcher.issued[6].in[0], second);  // reads what the step before has written
  EXPECT_EQ(watcher.issued[8].updates[0], first);
  EXPECT_EQ(watcher.issued[6].waits, (Waits{{"compute", 1}, {"copy_out", 1}}));
  EXPECT_EQ(watcher.issued[8].waits, (Waits{{"compute", 3}, {"copy_in", 1}}));  // which read what lay there before
  EXPECT_EQ(walk.offset_of(0, m), first);
  EXPECT_EQ(walk.copied_in_bytes(), 32 * 4);
  EXPECT_EQ(walk.copied_out_bytes(), 32 * 4);
}

const std::string kMayDrop =
    "s\ns, F\n  no layer\n    x = source {columns 4, rows 64, us 1}\n    n = counted {us 1}  copy_out  stall\n"
    "    y = scaled x {us 10}\n    u = scaled y {us 1}\n    drop y if n > 4\n    w = scaled u {us 1}\n"
    "s, I\n  no layer\n    y = scaled x {us 10} again if n > 4\n    v = scaled y {us 1}\n    t = scaled w {us 1}\n";

TEST(Conditions, DecideWhatRunsAndWhatStays) {
  const ir::StepProgram program = program_of({kMayDrop}, 2);
  ir::Walk walk(program, 0, 0);
  Watcher watcher(walk, {3, 9, 9, 3});  // by microbatch, two steps
  walk.run_step(watcher);
  const std::vector<Issued> first = std::move(watcher.issued);
  EXPECT_EQ(first.size(), 7u + 8u);
  const int64_t one = 64 * 4 * 4;
  const auto live = [&](size_t i) { return (first[i].live_bytes + one / 2) / one; };  // in values, about
  EXPECT_EQ(live(4), 4);   // w, in microbatch 0: x, y, u and w
  EXPECT_EQ(live(11), 3);  // in microbatch 1 y is gone
  EXPECT_EQ(first[12].kind, "scaled");
  EXPECT_EQ(live(12), 3);  // y again, beside x and w
  watcher.issued.clear();
  walk.run_step(watcher);  // the other way round
  EXPECT_EQ(watcher.issued.size(), 8u + 7u);
  EXPECT_EQ(walk.storage().live_bytes(), 0);
  EXPECT_DOUBLE_EQ(step_us(program_of({kMayDrop}), 4), 1 + 10 + 4);
  EXPECT_DOUBLE_EQ(step_us(program_of({kMayDrop}), 5), 1 + 20 + 4);
}

TEST(Conditions, AWalkThatFailsCanGoOn) {
  const ir::StepProgram program = program_of({kMayDrop});
  ir::Walk walk(program, 0, 4 * 64 * 4 * 4);
  Watcher few(walk, {3}), many(walk, {9});
  EXPECT_THROW(walk.run_step(few), ir::OutOfMemory);  // kept, it doesn't fit beside the number that is counted
  many.issued.clear();
  walk.run_step(many);
  EXPECT_EQ(many.issued.size(), 8u);
}

std::string joins(const std::string& first, const std::string& second) {
  return "s\ns, F\n  no layer\n    x = source {columns 4, rows 8, us 1}\n    a = joined x {us 10}  " + first +
         "\n    b = joined x {us 10}  " + second + "\n";
}

TEST(Channels, AreCarriedInOneOrder) {
  const auto both = [](const std::string& first, const std::string& second) {
    return step_us(program_of({joins(first, second), joins(first, second)}));
  };
  EXPECT_DOUBLE_EQ(both("comm.tp", "comm.dp"), 11);
  EXPECT_DOUBLE_EQ(both("comm.tp", "comm.tp"), 21);
  EXPECT_DOUBLE_EQ(both("on comm.a over tp", "on comm.b over tp"), 21);  // two streams, one channel
  EXPECT_DOUBLE_EQ(both("on comm.a over tp", "on comm.a over dp"), 21);  // one stream, two channels
  EXPECT_DOUBLE_EQ(both("on comm.a over tp", "on comm.b over dp"), 11);
  const std::vector<Issued> ops = walked(program_of({joins("on comm.a over tp", "on comm.b over tp")}));
  EXPECT_EQ(ops[2].waits, (Waits{{"compute", 1}, {"comm.a", 1}}));
}

// Ranks that use a channel in different orders never meet.
TEST(Channels, OfRanksThatDifferAreFoundOut) {
  const std::string other =
      "s\ns, F\n  no layer\n    x = source {columns 4, rows 8, us 1}\n"
      "    b = agreed x {us 10}  comm.tp\n    a = joined x {us 10}  comm.tp\n";
  const std::string one =
      "s\ns, F\n  no layer\n    x = source {columns 4, rows 8, us 1}\n"
      "    a = joined x {us 10}  comm.tp\n    b = agreed x {us 10}  comm.tp\n";
  const ir::StepProgram program = program_of({one, other});
  EXPECT_THROW(step_us(program), InternalError);
  const auto all = [](const std::string&, int) { return std::vector{0, 1}; };
  EXPECT_THROW(ir::verify_channels(program, all), InternalError);
  ir::verify_channels(program_of({one, one}), all);
  const auto alone = [](const std::string&, int rank) { return std::vector{rank}; };
  ir::verify_channels(program, alone);
}

TEST(Channels, AnOpThatComputesMeetsItsGroup) {
  const std::string early =
      "s\ns, F\n  no layer\n    x = source {columns 4, rows 8, us 1}\n"
      "    a = fused_join x {us 10}  compute over tp\n    b = scaled a {us 2}\n";
  const std::string late =
      "s\ns, F\n  no layer\n    x = source {columns 4, rows 8, us 5}\n"
      "    a = fused_join x {us 10}  compute over tp\n";
  EXPECT_DOUBLE_EQ(step_us(program_of({early, late})), 5 + 10 + 2);
}

}  // namespace
}  // namespace heddle::test

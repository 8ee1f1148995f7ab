// The op that makes a rank slow is named from what ops took: the one, those of a kind, or all of them.
#include "heddle/session/slow/slow_op.h"

#include <gtest/gtest.h>

#include <numeric>

#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "heddle/config/step_range.h"
#include "heddle/plan/plan.h"
#include "heddle/session/slow/long_waits.h"
#include "heddle/session/slow/op_times.h"
#include "heddle/session/slow/pair_probe.h"
#include "heddle/session/slow/slow_cost.h"
#include "tests/support/set_pace.h"
#include "tests/support/slow_world.h"
#include "tests/support/tiny_models.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_run.h"

namespace heddle::session {
namespace {

ir::StepProgram small_program() {
  plan::Plan plan;
  plan.mesh.dp = 2;
  plan.sequences = 1;
  plan.sequence_length = 16;
  plan.microbatches = 2;
  return plan::lower(test::tiny_model(), plan).program;
}

// Times of all ops as a rank has them, 5 % of noise on the middle of a few calls.
OpTimes times_of(const ir::StepProgram& program, uint64_t seed) {
  const RandomKey key = RandomKey(seed).with("times");
  OpTimes times;
  uint64_t at = 0;
  for (uint32_t i = 0; i < program.listings[0].ops.size(); ++i) {
    const double usual_s = 1e-3 * (1 + static_cast<double>(RandomKey(5).bits(i) % 8));
    times.push_back({0, i, 2, usual_s * (1 + 0.05 / 3 * key.normal(at++)), -1, 0});
  }
  return times;
}

bool slows(WorkKind kind, const ir::Op& op) {
  const bool backward = op.phase == ir::Phase::I || op.phase == ir::Phase::W;
  return !ir::communicates(*op.def) && ir::runs(*op.def) && op.def->stream == ir::StreamKind::compute &&
         op.stream.empty() && (kind == WorkKind::forward ? op.phase == ir::Phase::F : backward);
}

TEST(SlowOp, OneOpIsNamedAndAKindAndAll) {
  const ir::StepProgram program = small_program();
  const std::vector<ir::Op>& ops = program.listings[0].ops;
  int named = 0, kinds = 0, all = 0;
  for (uint64_t draw = 0; draw < 100; ++draw) {
    const RandomKey key = RandomKey(draw).with("draw");
    const WorkKind kind = draw % 2 == 0 ? WorkKind::forward : WorkKind::backward;
    std::vector<uint32_t> of_kind;
    for (uint32_t i = 0; i < ops.size(); ++i) {
      if (slows(kind, ops[i])) of_kind.push_back(i);
    }
    const uint32_t hurt = of_kind[key.bits(0) % of_kind.size()];
    const OpTimes one = times_of(program, 2 * draw), other = times_of(program, 2 * draw + 1);
    double phase_s = 0;
    for (const uint32_t i : of_kind) phase_s += other[i].seconds();
    OpTimes slow = one;
    slow[hurt].call_s += 0.15 * phase_s / slow[hurt].calls;  // the whole phase takes 15 % longer
    const std::optional<SlowOp> found = slow_op(program, kind, slow, {&other});
    ASSERT_TRUE(found);
    named += found->scope == SlowOp::Scope::one && found->op == hurt;

    slow = one;
    for (const uint32_t i : of_kind) slow[i].call_s *= 1.15;
    const std::optional<SlowOp> processor = slow_op(program, kind, slow, {&other});
    all += processor && processor->scope == SlowOp::Scope::all;

    slow = one;
    size_t alike = 0;
    for (const uint32_t i : of_kind) {
      if (ops[i].kind() != ops[hurt].kind()) continue;
      slow[i].call_s *= 1.5;
      ++alike;
    }
    const std::optional<SlowOp> few = slow_op(program, kind, slow, {&other});
    kinds += few && (alike == 1 ? few->op == hurt
                                : few->scope != SlowOp::Scope::all && ops[few->op].kind() == ops[hurt].kind());
  }
  EXPECT_GE(named, 95);
  EXPECT_GE(all, 95);
  EXPECT_GE(kinds, 90);
}

TEST(SlowOp, TimesGoToOtherRanksAsTheyAre) {
  const OpTimes times = times_of(small_program(), 3);
  const OpTimes back = unpacked(packed(times));
  ASSERT_EQ(back.size(), times.size());
  EXPECT_EQ(back[7].call_s, times[7].call_s);
  EXPECT_THROW(unpacked("123"), InternalError);
}

// Experts with three times the rows are as quick by the row.
TEST(SlowOp, HotExpertsAreNotSlow) {
  const ir::StepProgram program = small_program();
  OpTimes hot{{0, 0, 2, 3e-3, 3000, 2e-6}}, cool{{0, 0, 2, 1e-3, 1000, 2e-6}};
  EXPECT_FALSE(slow_op(program, WorkKind::experts, hot, {&cool}));
}

// Two ranks that train in the paced mode, an op of one of them stretched; the simulator says what that costs.
TEST(SlowOp, IsNamedWhileTheyTrain) {
  config::RunConfig config = train::small_config(2);
  config.plan.mesh.dp = 2;
  train::RankTrainers ranks(train::trainer_options_of(config));
  const ir::StepProgram& program = ranks[0].lowered().program;
  const int listing = program.listing_of(0, ir::Purpose::train);
  const std::vector<ir::Op>& ops = program.listings[static_cast<size_t>(listing)].ops;
  uint32_t hurt = 0;
  while (!slows(WorkKind::forward, ops[hurt]) || ops[hurt].kind() != "attention") ++hurt;
  std::vector<OpTimes> times(2);
  ranks.each([&](train::Trainer& trainer) {
    trainer.initialise();
    std::vector<std::vector<int64_t>> pace(program.listings.size());
    for (size_t s = 0; s < pace.size(); ++s) pace[s].assign(program.listings[s].ops.size(), 300'000);
    if (trainer.ranks().rank() == 1) pace[static_cast<size_t>(listing)][hurt] = 30'000'000;
    set_pace(trainer.executor(), pace);
    OpClock clock;
    clock.time_steps(4);
    for (uint64_t step = 1; clock.runs(); ++step) {
      clock.before_step(trainer.executor());
      trainer.step(train::random_sequences(trainer, 2, step));
      clock.after_step(trainer.executor());
    }
    times[static_cast<size_t>(trainer.ranks().rank())] = clock.take();
  });
  const std::optional<SlowOp> found = slow_op(program, WorkKind::forward, times[1], {&times[0]});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->op, hurt) << text_of(*found, program);
  EXPECT_EQ(found->scope, SlowOp::Scope::one) << text_of(*found, program);
  const std::optional<double> without = step_without(ranks[0], times, 1);
  ASSERT_TRUE(without);
  double all_s = 0;
  for (const OpTime& time : times[1]) all_s += time.seconds();
  EXPECT_LT(*without, 1 - 0.25 * 29.7e-3 / all_s);  // other programs on the cores make both ranks wait
  EXPECT_GT(*without, 0.2);
  EXPECT_NEAR(*step_without(ranks[0], times, 0), 1, 0.1);  // the other one holds nobody up
}

TEST(LongWaits, AreFoundUnlessARankExplainsThem) {
  const auto run = [](double more_s, bool explained) {
    LongWaits waits;
    const RandomKey key = RandomKey(9).with("waits");
    int found = 0;
    for (int64_t step = 1; step <= 300; ++step) {
      train::StepResult result;
      result.step = step;
      const double noise = 1 + 0.05 * key.normal(static_cast<uint64_t>(step));
      result.seconds = 0.1 * noise + (step > 100 ? more_s : 0);
      result.work.assign(2, {0.03, 0.04, 0.005, 0, 0});
      waits.add(result);
      if (step % SlowRanks::kWindow != 0) continue;
      waits.judge(explained && step > 100 ? more_s : 0);
      found += waits.found();
      if (waits.found()) {
        EXPECT_EQ(waits.now()->since, 101);
        EXPECT_NEAR(waits.now()->excess_s, more_s, 0.2 * more_s);
      }
    }
    return found;
  };
  EXPECT_EQ(run(0.02, false), 1);
  EXPECT_EQ(run(0.02, true), 0);
  EXPECT_EQ(run(0, false), 0);
}

using Matrix = std::vector<std::vector<double>>;

TEST(PairProbe, NamesTheSlowPairOrTheRankOfAllSlowPairs) {
  const std::vector<int> nodes{0, 0, 1, 1};
  const Matrix usual(4, std::vector<double>(4, 2e-3));
  EXPECT_TRUE(slow_pairs(usual, {}, nodes).empty());
  Matrix now = usual;
  now[1][3] = now[3][1] = 7e-3;
  for (const Matrix& before : {Matrix(), usual}) {
    const std::vector<SlowPair> slow = slow_pairs(now, before, nodes);
    ASSERT_EQ(slow.size(), 1u);
    EXPECT_EQ(slow[0].a, 1);
    EXPECT_EQ(slow[0].b, 3);
    EXPECT_NEAR(slow[0].times(), 3.5, 1e-9);
  }
  now = usual;
  for (size_t r = 0; r < 4; ++r) now[2][r] = now[r][2] = 6e-3;
  const std::vector<SlowPair> slow = slow_pairs(now, usual, nodes);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].a, 2);
  EXPECT_EQ(slow[0].b, -1);
  // What waits at one end alone is no slow link, nor is what crosses nodes and always did.
  now = usual;
  now[0][1] = 9e-3;
  EXPECT_TRUE(slow_pairs(now, usual, nodes).empty());
}

TEST(PairProbe, MeasuresLinksThatAreSlow) {
  for (const int ranks : {2, 3, 5}) {
    Matrix all;
    comm::run_on_threads(ranks, [&](comm::World& plain) {
      test::Links links{.bytes_per_s = 500e6, .a = 0, .b = 1, .times = 4};
      test::SlowWorld world(plain, links);
      train::RankExchange exchange(&plain);
      std::vector<int> members(static_cast<size_t>(ranks));
      std::iota(members.begin(), members.end(), 0);
      const auto link = world.communicator(members, "probe");
      const Matrix own = all_transfer_times(*link, exchange, 1 << 20, 3);
      if (plain.rank() == 0) all = own;
    });
    for (size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r][r], 0);
    EXPECT_GT(all[0][1], 8e-3);
    EXPECT_GT(all[1][0], 8e-3);
    if (ranks > 2) {
      EXPECT_LT(all[0][2], 8e-3);
      const std::vector<SlowPair> slow = slow_pairs(all, {}, std::vector<int>(static_cast<size_t>(ranks), 0));
      ASSERT_EQ(slow.size(), 1u);
      EXPECT_EQ(slow[0].b, 1);
    }
  }
}

TEST(StepRange, IsReadAndWritten) {
  EXPECT_EQ(config::text_of(config::parse_step_range("7")), "7");
  EXPECT_EQ(config::text_of(config::parse_step_range("3-9")), "3-9");
  EXPECT_FALSE(config::parse_step_range("").holds(0));
  for (const char* bad : {"x", "9-3", "0", "3-", "3-9 "})
    EXPECT_THROW(config::parse_step_range(bad), ConfigError) << bad;
}

}  // namespace
}  // namespace heddle::session

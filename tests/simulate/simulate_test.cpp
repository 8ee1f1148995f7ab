// Small programs whose times can be worked out by hand.
#include "heddle/simulate/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "heddle/ir/verify/verify.h"
#include "tests/simulate/hand_made.h"

namespace heddle::test {
namespace {

using ir::Phase;
using simulate::Simulation;

TEST(Simulate, OneForwardOneBackwardTakesItsFormula) {
  for (const int ranks : {1, 2, 4}) {
    for (const int microbatches : {ranks, 3 * ranks}) {
      const ir::StepProgram program = pipeline(ranks, microbatches, 10, 20, 0);
      ir::verify(program);
      simulate::SimulationInput input = written_durations();
      input.groups = pipeline_groups(ranks);
      const Simulation s = simulate::simulate(program, input);
      EXPECT_EQ(s.deadlock, "");
      EXPECT_DOUBLE_EQ(s.step_us, (microbatches + ranks - 1) * 30.0);
      for (const simulate::RankResult& rank : s.ranks) {
        EXPECT_DOUBLE_EQ(rank.streams[0].busy_us, microbatches * 30.0);
        EXPECT_DOUBLE_EQ(rank.streams[0].waiting_us + rank.streams[0].idle_us, (ranks - 1) * 30.0);
      }
      double on_path_us = 0;
      for (const simulate::OpRef& link : s.critical_path) {
        const simulate::SimulatedOp& op = s.ranks[static_cast<size_t>(link.rank)].ops[link.index];
        on_path_us += op.end_us - op.start_us;
      }
      EXPECT_DOUBLE_EQ(on_path_us, s.step_us);  // free messages and a free host: the path has no gaps
    }
  }
}

// Forward down two listings and back, one microbatch: each message is in the way once, for its send alone (the
// receive runs beside it).
TEST(Simulate, MessagesDelayTheNeighbour) {
  const ir::StepProgram program = pipeline(2, 1, 10, 20, 3);
  simulate::SimulationInput input = written_durations();
  input.groups = pipeline_groups(2);
  const Simulation s = simulate::simulate(program, input);
  EXPECT_DOUBLE_EQ(s.step_us, 10 + 3 + 10 + 20 + 3 + 20);
}

TEST(Simulate, StreamsOverlap) {
  ir::Listing listing;
  const ir::ValueId a = put(listing, fetch, Phase::F, {}, 10, "a");
  const ir::ValueId b = put(listing, work, Phase::F, {}, 7, "b");
  put(listing, work, Phase::F, {a, b}, 5, "c");
  put(listing, fetch, Phase::F, {}, 4, "d");
  const Simulation s = simulate::simulate(forward_only({listing}), written_durations());
  const auto& ops = s.ranks[0].ops;
  EXPECT_DOUBLE_EQ(ops[0].start_us, 0);
  EXPECT_DOUBLE_EQ(ops[1].start_us, 0);
  EXPECT_DOUBLE_EQ(ops[2].start_us, 10);
  EXPECT_DOUBLE_EQ(ops[3].start_us, 10);
  EXPECT_DOUBLE_EQ(s.step_us, 15);
  const auto& compute = s.ranks[0].streams[0];
  EXPECT_DOUBLE_EQ(compute.busy_us, 12);
  EXPECT_DOUBLE_EQ(compute.waiting_us, 3);
  EXPECT_DOUBLE_EQ(compute.idle_us, 0);
  ASSERT_EQ(s.critical_path.size(), 2u);
  EXPECT_EQ(s.critical_path[0].index, 0u);
  EXPECT_EQ(s.critical_path[1].index, 2u);
}

// A message takes a fifth of the units: 7 us of work last 8.75 beside it, and of the next 5 us 3.2 are done in 4.
TEST(Simulate, MessagesTakeUnitsFromWhatComputes) {
  ir::Listing listing;
  const ir::ValueId a = put(listing, fetch, Phase::F, {}, 10, "a");
  const ir::ValueId b = put(listing, work, Phase::F, {}, 7, "b");
  put(listing, work, Phase::F, {a, b}, 5, "c");
  put(listing, fetch, Phase::F, {}, 4, "d");
  simulate::SimulationInput input = written_durations();
  input.takes = [](int, const ir::Issue& issue) { return issue.op->def == &fetch ? 0.2 : 0.0; };
  const Simulation s = simulate::simulate(forward_only({listing}), input);
  const auto& ops = s.ranks[0].ops;
  EXPECT_NEAR(ops[0].end_us, 10, 1e-9);
  EXPECT_NEAR(ops[1].end_us, 8.75, 1e-9);
  EXPECT_NEAR(ops[2].end_us, 15.8, 1e-9);
  EXPECT_NEAR(ops[3].end_us, 14, 1e-9);
  input.takes = [](int, const ir::Issue& issue) { return issue.op->def == &fetch ? 5.0 : 0.0; };
  EXPECT_NEAR(simulate::simulate(forward_only({listing}), input).ranks[0].ops[1].end_us, 14 + 5.6, 1e-9)
      << "a tenth is left";
}

TEST(Simulate, TheHostIsAStream) {
  ir::Listing listing;
  const ir::ValueId a = put(listing, work, Phase::F, {}, 10, "a");
  put(listing, stall, Phase::F, {a}, 5, "n");
  put(listing, work, Phase::F, {}, 8, "b");
  simulate::SimulationInput input = written_durations();
  input.enqueue_us = 1;
  const Simulation s = simulate::simulate(forward_only({listing}), input);
  const auto& ops = s.ranks[0].ops;
  EXPECT_DOUBLE_EQ(ops[0].start_us, 1);
  EXPECT_DOUBLE_EQ(ops[1].start_us, 11);
  EXPECT_DOUBLE_EQ(ops[1].end_us, 16);
  EXPECT_DOUBLE_EQ(ops[2].issued_us, 17);  // the host waited for the stall
  EXPECT_DOUBLE_EQ(ops[2].start_us, 17);
  EXPECT_DOUBLE_EQ(s.step_us, 25);
  EXPECT_DOUBLE_EQ(s.ranks[0].host_stalled_us, 14);
}

// Two streams with a thread each on one core: half speed while both run.
TEST(Simulate, ThreadsShareTheCoresOfTheirMachine) {
  ir::Listing listing;
  put(listing, fetch, Phase::F, {}, 10, "a");
  put(listing, work, Phase::F, {}, 4, "b");
  simulate::SimulationInput input = written_durations();
  input.threads = [](int, const ir::Issue&) { return 1.0; };
  input.speed = [](double threads) { return 1 / std::max(1.0, threads); };
  Simulation s = simulate::simulate(forward_only({listing}), input);
  EXPECT_NEAR(s.ranks[0].ops[1].end_us, 8, 1e-6);
  EXPECT_NEAR(s.step_us, 14, 1e-6);
  // Two ranks of the kind: four threads on one machine, or two on each of two.
  const ir::StepProgram two = forward_only({listing, listing});
  EXPECT_NEAR(simulate::simulate(two, input).step_us, 28, 1e-6);
  input.machine_of = {0, 1};
  EXPECT_NEAR(simulate::simulate(two, input).step_us, 14, 1e-6);
}

// Two pairs of ranks exchange between the same two hosts at the same time. What each would use of the links alone
// fits beside the other up to half of the rate; beyond, both take longer.
TEST(Simulate, MessagesShareTheLinksOfTheirHosts) {
  std::vector<ir::Listing> listings(4);
  for (int r = 0; r < 4; ++r)
    put(listings[static_cast<size_t>(r)], meet, Phase::F, {}, 10, "m", r % 2 == 0 ? "a" : "b");
  const ir::StepProgram program = forward_only(listings);
  simulate::SimulationInput input = written_durations();
  input.groups = {{"comm.a", {{0, 2}}}, {"comm.b", {{1, 3}}}};
  input.host_of = {0, 0, 1, 1};
  double use_us = 4;
  input.link_use = [&](int, const ir::Issue&) { return simulate::LinkUse{use_us, use_us}; };
  EXPECT_NEAR(simulate::simulate(program, input).step_us, 10, 1e-6);
  use_us = 10;
  EXPECT_NEAR(simulate::simulate(program, input).step_us, 20, 1e-6);
  use_us = 7.5;  // three halves of the rate are asked for
  EXPECT_NEAR(simulate::simulate(program, input).step_us, 15, 1e-6);
  input.host_of = {0, 1, 2, 3};  // links of their own
  EXPECT_NEAR(simulate::simulate(program, input).step_us, 10, 1e-6);
  input.host_of = {0, 0, 1, 1};
  input.link_use = [&](int rank, const ir::Issue&) {  // the other way each: a link has two directions
    return (rank < 2) == (rank % 2 == 0) ? simulate::LinkUse{10, 0} : simulate::LinkUse{0, 10};
  };
  EXPECT_NEAR(simulate::simulate(program, input).step_us, 10, 1e-6);
}

// A message sent leaves one host and arrives on another, where it meets one that is already on its way.
TEST(Simulate, ASendTakesTheLinkOfItsReceiver) {
  const ir::StepProgram program = pipeline(2, 1, 10, 20, 6);
  simulate::SimulationInput input = written_durations();
  input.groups = pipeline_groups(2);
  input.link_use = [](int, const ir::Issue& issue) {
    return issue.op->kind() == "send" ? simulate::LinkUse{6, 6} : simulate::LinkUse{};
  };
  EXPECT_NEAR(simulate::simulate(program, input).step_us, 10 + 6 + 10 + 20 + 6 + 20, 1e-6);
  // A collective of rank 1 with itself keeps its host's link in busy for the time of the first message.
  std::vector<ir::Listing> listings(2);
  const ir::ValueId y = put(listings[0], work, Phase::F, {}, 1, "y");
  message(listings[0], Phase::F, y, 1, 6);
  message(listings[1], Phase::F, ir::none, -1, 6);
  put(listings[1], meet, Phase::F, {}, 12, "m", "a");
  input.groups["comm.a"] = {{1}};
  input.link_use = [](int, const ir::Issue& issue) {
    return issue.op->kind() == "send"   ? simulate::LinkUse{6, 6}
           : issue.op->kind() == "meet" ? simulate::LinkUse{0, 12}
                                        : simulate::LinkUse{};
  };
  const Simulation s = simulate::simulate(forward_only(listings), input);
  EXPECT_NEAR(s.ranks[0].end_us, 1 + 12, 1e-6);  // at half the rate
  EXPECT_NEAR(s.step_us, 18, 1e-6);              // 12 + 6 of bytes through one link, begun at once
}

// Each op of each rank draws its own: the mean of many is 1, their deviation the one asked for, and the same seed
// gives the same step.
TEST(Simulate, JitterLengthensAndShortensOps) {
  ir::Listing listing;
  for (int i = 0; i < 4000; ++i) put(listing, work, Phase::F, {}, 10, fmt::format("op {}", i));
  const ir::StepProgram program = forward_only({listing, listing});
  simulate::SimulationInput input = written_durations();
  input.jitter = 0.2;
  const Simulation s = simulate::simulate(program, input);
  double sum = 0, squares = 0;
  int same = 0;
  for (size_t i = 0; i < s.ranks[0].ops.size(); ++i) {
    const auto us = [&](int r) { return s.of(r).ops[i].end_us - s.of(r).ops[i].start_us; };
    sum += us(0);
    squares += us(0) * us(0);
    same += us(0) == us(1);
  }
  const double mean = sum / 4000, deviation = std::sqrt(squares / 4000 - mean * mean);
  EXPECT_NEAR(mean, 10, 4 * 2 / std::sqrt(4000.0));
  EXPECT_NEAR(deviation, 2, 0.1);
  EXPECT_EQ(same, 0);
  EXPECT_DOUBLE_EQ(simulate::simulate(program, input).step_us, s.step_us);
  input.seed = 2;
  EXPECT_NE(simulate::simulate(program, input).step_us, s.step_us);
  input.ranks_differ = false;  // with jitter no two ranks do the same
  EXPECT_EQ(simulate::simulate(program, input).ranks.size(), 2u);
}

TEST(Simulate, AStepOfDaysEnds) {
  ir::Listing listing;
  put(listing, fetch, Phase::F, {}, 1e13, "a");
  for (int i = 0; i < 10; ++i) put(listing, work, Phase::F, {}, 0.3, fmt::format("b{}", i));
  simulate::SimulationInput input = written_durations();
  input.threads = [](int, const ir::Issue&) { return 1.0; };
  input.speed = [](double threads) { return 1 / std::max(1.0, 3 * threads); };
  std::vector<ir::Listing> listings(1, listing);
  const ir::ValueId last = put(listings[0], work, Phase::F, {0}, 0.1, "c");
  put(listings[0], work, Phase::F, {last}, 0.7, "d");
  EXPECT_NEAR(simulate::simulate(forward_only(listings), input).step_us, 3e13, 1e3);
}

TEST(Simulate, AStreamThatSleptIsLate) {
  ir::Listing listing;
  const ir::ValueId a = put(listing, fetch, Phase::F, {}, 10, "a");
  const ir::ValueId b = put(listing, work, Phase::F, {a}, 5, "b");
  put(listing, work, Phase::F, {b}, 5, "c");
  simulate::SimulationInput input = written_durations();
  input.wake_us = 3;
  EXPECT_DOUBLE_EQ(simulate::simulate(forward_only({listing}), input).step_us, 10 + 3 + 5 + 5);
}

TEST(Simulate, CollectivesBeginTogether) {
  std::vector<ir::Listing> listings(2);
  for (int r = 0; r < 2; ++r) {
    ir::Listing& listing = listings[static_cast<size_t>(r)];
    const ir::ValueId a = put(listing, work, Phase::F, {}, r == 0 ? 10 : 30, "a");
    const ir::ValueId m = put(listing, meet, Phase::F, {a}, 5, "m", "ep");
    put(listing, work, Phase::F, {m}, 2, "b");
  }
  simulate::SimulationInput input = written_durations();
  input.groups = {{"comm.ep", {{0, 1}}}};
  const Simulation s = simulate::simulate(forward_only(listings), input);
  EXPECT_EQ(s.deadlock, "");
  for (const simulate::RankResult& rank : s.ranks) {
    EXPECT_DOUBLE_EQ(rank.ops[1].start_us, 30);
    EXPECT_DOUBLE_EQ(rank.end_us, 37);
  }
  // The path to rank 0's end leads over rank 1, which came last.
  EXPECT_EQ(s.critical_path.front().rank, 1);
}

// Rank 0 meets on a and then, with its result, on b; rank 1 the other way round.
TEST(Simulate, ACircleOfGroupsIsADeadlock) {
  std::vector<ir::Listing> listings(2);
  const ir::ValueId a = put(listings[0], meet, Phase::F, {}, 1, "a", "a");
  put(listings[0], meet, Phase::F, {a}, 1, "b", "b");
  const ir::ValueId b = put(listings[1], meet, Phase::F, {}, 1, "b", "b");
  put(listings[1], meet, Phase::F, {b}, 1, "a", "a");
  listings[0].name = "left";
  listings[1].name = "right";
  simulate::SimulationInput input = written_durations();
  input.groups = {{"comm.a", {{0, 1}}}, {"comm.b", {{0, 1}}}};
  const Simulation s = simulate::simulate(forward_only(listings), input);
  EXPECT_NE(s.deadlock.find("rank 0, comm.a: 'meet' of left, microbatch 0 waits for rank 1\n"), std::string::npos)
      << s.deadlock;
  EXPECT_NE(s.deadlock.find("rank 1, comm.b: 'meet' of right, microbatch 0 waits for rank 0\n"), std::string::npos)
      << s.deadlock;
  EXPECT_FALSE(s.ranks[0].ops[0].ran);
}

// Without the circle the same ops go through.
TEST(Simulate, TheSameGroupsInOneOrderAreNone) {
  std::vector<ir::Listing> listings(2);
  for (ir::Listing& listing : listings) {
    const ir::ValueId a = put(listing, meet, Phase::F, {}, 1, "a", "a");
    put(listing, meet, Phase::F, {a}, 1, "b", "b");
  }
  simulate::SimulationInput input = written_durations();
  input.groups = {{"comm.a", {{0, 1}}}, {"comm.b", {{0, 1}}}};
  const Simulation s = simulate::simulate(forward_only(listings), input);
  EXPECT_EQ(s.deadlock, "");
  EXPECT_DOUBLE_EQ(s.step_us, 2);
}

TEST(Simulate, TwoRanksThatBothReceiveFirstAreADeadlock) {
  std::vector<ir::Listing> listings(2);
  const ir::ValueId right = message(listings[0], Phase::F, ir::none, 1, 1);
  message(listings[0], Phase::F, right, 1, 1);
  const ir::ValueId left = message(listings[1], Phase::F, ir::none, -1, 1);
  message(listings[1], Phase::F, left, -1, 1);
  ir::StepProgram program;
  program.listings = listings;
  program.class_of_rank = {0, 1};
  for (int s = 0; s < 2; ++s) {
    program.actions[0].emplace_back();
    for (const ir::BlockKind kind : {ir::BlockKind::receive_F, ir::BlockKind::F}) {
      program.actions[0].back().push_back({static_cast<int>(program.blocks.size()), {0}});
      program.blocks.push_back(ir::make_block(program, s, kind));
    }
  }
  simulate::SimulationInput input = written_durations();
  input.groups = pipeline_groups(2);
  const Simulation s = simulate::simulate(program, input);
  EXPECT_NE(s.deadlock.find("waits for a send of rank 1\n"), std::string::npos) << s.deadlock;
  EXPECT_NE(s.deadlock.find("waits for a send of rank 0\n"), std::string::npos) << s.deadlock;
}

TEST(Simulate, RanksOfAClassCanBeWalkedOnce) {
  const ir::StepProgram program = pipeline(4, 8, 10, 20, 2);
  simulate::SimulationInput input = written_durations();
  input.groups = pipeline_groups(4);
  const double apart_us = simulate::simulate(program, input).step_us;
  input.ranks_differ = false;
  EXPECT_DOUBLE_EQ(simulate::simulate(program, input).step_us, apart_us);
}

// Refused at once, not when the memory is full.
TEST(Simulate, TooManyRanksThatDifferAreRefused) {
  ir::Listing listing;
  for (int i = 0; i < 400; ++i) put(listing, work, Phase::F, {}, 1, fmt::format("op {}", i));
  ir::StepProgram program = forward_only({listing});
  program.class_of_rank.assign(40'000, 0);
  simulate::SimulationInput input = written_durations();
  EXPECT_THROW(simulate::simulate(program, input), ConfigError);
  input.ranks_differ = false;
  EXPECT_EQ(simulate::simulate(program, input).ranks.size(), 1u);
  input.jitter = 0.1;
  EXPECT_THROW(simulate::simulate(program, input), ConfigError);
}

TEST(Simulate, ACommunicationWithoutAGroupIsRefused) {
  EXPECT_THROW(simulate::simulate(pipeline(2, 1, 1, 1, 0), written_durations()), InternalError);
}

}  // namespace
}  // namespace heddle::test

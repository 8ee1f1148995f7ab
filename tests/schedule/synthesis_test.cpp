// Orders as words, their bounds and their search. The bubbles to reach are those of pipeline schedules found by
// long annealing from nothing, for caps between those of the named schedules.
#include "synthesis/synthesis.h"

#include <gtest/gtest.h>

#include <random>

#include "heddle/base/error.h"
#include "heddle/schedule/generators/generators.h"
#include "synthesis/anneal.h"
#include "synthesis/capped_greedy.h"

using namespace heddle;
using namespace heddle::schedule;

namespace {

OrderTask even_task(const Placement& placement, int microbatches, const StageTimes& rank, double cap,
                    double hop = 0, double kept_for_w = 1, double pair = 1) {
  return {placement, microbatches, even_times(placement, rank, pair, hop),
          even_bytes(placement, {1 - kept_for_w, kept_for_w}),
          std::vector<double>(static_cast<size_t>(placement.ranks), cap)};
}

/// A task of odd times and sizes.
OrderTask drawn_task(const Placement& placement, int microbatches, std::mt19937& random) {
  std::uniform_real_distribution<double> any(.2, 2);
  OrderTask task = even_task(placement, microbatches, {}, 1e9, any(random) - .2, 1, any(random) / 2 + .5);
  for (StageTimes& of : task.times.stages) of = {any(random), any(random), any(random), any(random) - .2};
  for (StageBytes& of : task.bytes) of = {any(random), any(random)};
  return task;
}

std::vector<Schedule> named(int ranks, int microbatches) {
  std::vector<Schedule> all;
  for (const Generator& generator : generators()) {
    try {
      GeneratorOptions options;
      options.ranks = ranks;
      options.microbatches = microbatches;
      Schedule schedule = make_schedule(generator.name, options);
      if (schedule.placement.routes == 1) all.push_back(std::move(schedule));
    } catch (const ConfigError&) {  // not for these numbers
    }
  }
  return all;
}

TEST(Orders, agree_with_timing_and_validator) {
  std::mt19937 random(1);
  int seen = 0;
  for (const auto& [ranks, microbatches] : {std::pair{1, 3}, {2, 5}, {4, 8}, {5, 13}, {8, 16}}) {
    for (const Schedule& schedule : named(ranks, microbatches)) {
      const OrderTask task = drawn_task(schedule.placement, microbatches, random);
      const Words words = words_of(schedule);
      EXPECT_EQ(schedule_of(task, words, schedule.name), schedule);
      Orders orders(task);
      EXPECT_NEAR(orders.time(words), timing_of(schedule, task.times).makespan, 1e-9) << schedule.name;
      EXPECT_EQ(orders.time(words, orders.time(words) * .99), Orders::kNever);
      const std::vector<Peak> peaks = peaks_of(schedule, task.bytes);
      for (int r = 0; r < ranks; ++r) {
        EXPECT_NEAR(orders.peak_bytes(r, words[static_cast<size_t>(r)]), peaks[static_cast<size_t>(r)].bytes, 1e-9);
        EXPECT_TRUE(orders.legal(r, words[static_cast<size_t>(r)]));
      }
      ++seen;
    }
  }
  EXPECT_GT(seen, 40);
}

TEST(Orders, words_that_cannot_be) {
  const OrderTask task = even_task(loop_placement(2), 2, {}, 1.5);
  Orders orders(task);
  const Token f{0, -1, Kind::F}, i{-1, 0, Kind::I}, w{-1, 0, Kind::W}, b{-1, 0, Kind::B}, pair{0, 0, Kind::B};
  EXPECT_TRUE(orders.legal(0, {f, i, w, f, b}));
  EXPECT_FALSE(orders.legal(0, {i, f, w, f, b}));
  EXPECT_FALSE(orders.legal(0, {f, w, i, f, b}));
  EXPECT_FALSE(orders.legal(0, {pair, f, b}));
  EXPECT_FALSE(orders.legal(0, {f, i, f, b, w}));  // two held, and W of the second before that of the first
  EXPECT_FALSE(orders.legal(0, {f, f, b, b}));     // two held
  EXPECT_FALSE(orders.legal(0, {f, pair, b}));     // two held
  // Each rank's word may be, but together they wait for each other for ever.
  const OrderTask ring = even_task(loop_placement(2, 2), 1, {}, 10);
  const Token f1{1, -1, Kind::F}, b1{-1, 1, Kind::B};
  EXPECT_EQ(Orders(ring).time({{f1, f, b1, b}, {f, f1, b1, b}}), Orders::kNever);
}

TEST(Bounds, no_schedule_is_faster) {
  std::mt19937 random(2);
  for (const auto& [ranks, microbatches] : {std::pair{1, 2}, {2, 5}, {4, 9}, {8, 16}}) {
    for (const Schedule& schedule : named(ranks, microbatches)) {
      for (int draw = 0; draw < 20; ++draw) {
        OrderTask task = drawn_task(schedule.placement, microbatches, random);
        const std::vector<Peak> peaks = peaks_of(schedule, task.bytes);
        for (size_t r = 0; r < peaks.size(); ++r) task.cap_bytes[r] = peaks[r].bytes;
        EXPECT_LE(bounds_of(task, true).makespan(), timing_of(schedule, task.times).makespan * (1 + 1e-9))
            << schedule.name;
      }
    }
  }
}

TEST(Bounds, reached) {
  // ZB-V at F = I = W; one microbatch alone; and where a cap of one microbatch makes each wait for the one before.
  const OrderTask v = even_task(v_placement(4), 8, {}, 4);
  EXPECT_DOUBLE_EQ(bounds_of(v, false).makespan(), 8 * 3 + 1.5);
  const OrderTask alone = even_task(loop_placement(3), 1, {}, 1, .5);
  EXPECT_DOUBLE_EQ(bounds_of(alone, false).makespan(), 3 + 3 + 1 + 4 * .5);
  const OrderTask tight = even_task(loop_placement(2), 5, {}, 1);
  EXPECT_DOUBLE_EQ(bounds_of(tight, false).makespan(), 5 * 5);
}

TEST(Greedy, ends_within_any_cap) {
  std::mt19937 random(3);
  for (int draw = 0; draw < 300; ++draw) {
    const int ranks = 1 + static_cast<int>(random() % 5), chunks = 1 + static_cast<int>(random() % 3);
    const Placement placement = chunks == 2 && random() % 2 ? v_placement(ranks) : loop_placement(ranks, chunks);
    OrderTask task = drawn_task(placement, 1 + static_cast<int>(random() % 9), random);
    std::vector<GreedyRules> rules;
    for (int r = 0; r < ranks; ++r) {
      double least = 0;
      for (const int stage : placement.stages_of(r)) least += task.activation_bytes(stage);
      task.cap_bytes[static_cast<size_t>(r)] = least * (1 + static_cast<double>(random() % 5) / 2);
      GreedyRules& own = rules.emplace_back();
      for (int c = 0; c < chunks; ++c) {
        own.holds.push_back(1 + static_cast<int>(random() % 6));
        own.priority.push_back(c);
      }
      std::shuffle(own.priority.begin(), own.priority.end(), random);
      own.backward_first = random() % 2;
      own.patience = static_cast<double>(random() % 3);
    }
    Orders orders(task);
    const Words words = capped_greedy(orders, rules);
    for (int r = 0; r < ranks; ++r) EXPECT_TRUE(orders.legal(r, words[static_cast<size_t>(r)]));
    const double makespan = orders.time(words);
    EXPECT_GE(makespan, bounds_of(task, false).makespan() * (1 - 1e-9));
    EXPECT_NO_THROW(validate(schedule_of(task, words, "greedy")));
    const Words better = anneal(orders, words, {200, 1, true});
    EXPECT_LE(orders.time(better), makespan);
    EXPECT_NO_THROW(validate(schedule_of(task, better, "annealed")));
  }
}

double synthetic_bubble(const OrderTask& task, const SynthesisOptions& options) {
  const Synthesis found = synthesise(task, options);
  EXPECT_GE(found.gap(), -1e-9);
  if (const NamedOrder* best = found.best_named()) {
    EXPECT_LE(found.timing.makespan, best->makespan);
  }
  return found.timing.synchronous();
}

TEST(Synthesis, caps_between_those_of_named_schedules) {
  const std::vector<std::pair<double, double>> bubbles{{2, 5.5}, {2.5, 4}, {3, 2.5}, {3.5, 2}, {4, 1.5}};
  for (const auto& [cap, bubble] : bubbles) {
    const OrderTask task = even_task(v_placement(4), 12, {}, cap);
    EXPECT_LE(synthetic_bubble(task, {false, 200'000'000}), bubble + 1e-9) << cap;
  }
}

TEST(Synthesis, uneven_times) {
  const StageTimes times{1, 1.1, .75};
  for (const auto& [cap, bubble] : {std::pair{4.0, 19.5}, {5.0, 10.6}, {6.0, 7.9}, {8.0, 3.85}})
    EXPECT_LE(synthetic_bubble(even_task(v_placement(8), 24, times, cap), {false, 200'000'000}), bubble + 1e-9)
        << cap;
  EXPECT_LE(synthetic_bubble(even_task(v_placement(8), 24, times, 4, .1), {false, 50'000'000}), 28.9);
  EXPECT_LE(synthetic_bubble(even_task(v_placement(8), 24, times, 8, .1, .5), {false, 200'000'000}), 6.6);
}

TEST(Synthesis, pairs) {
  // DualPipeV's last pairs taken apart gain a few percent where exchanges are short.
  for (const auto& [m, a, gain] : {std::tuple{16, .1, .057}, {16, .25, .026}, {32, .25, .014}, {16, .5, 0.0}}) {
    const OrderTask task = even_task(v_placement(8), m, {1, 1, 1, a}, 8.5, 0, 1, 3.1 / 3);
    const double before = timing_of(make_schedule("dual_pipe_v", {8, m}), task.times).makespan;
    const Synthesis found = synthesise(task, {true, 300'000'000});
    EXPECT_LE(found.timing.makespan, before * (1 - gain)) << m << " " << a;
  }
}

TEST(Synthesis, may_be_ended_at_any_time) {
  const OrderTask task = even_task(v_placement(4), 12, {1, 1, 1}, 3.5);
  const SynthesisOptions whole{false, 20'000'000};
  const double least = synthesise(task, whole).timing.makespan;
  for (const double until : {0.0, 0.1, 0.3, 0.5}) {
    SynthesisOptions options = whole;
    double told = 0, fastest = Orders::kNever;
    options.ask = [&](double share, double makespan) {
      EXPECT_GE(share, told);
      EXPECT_LE(makespan, fastest);
      told = share;
      fastest = makespan;
      return share < until;
    };
    const Synthesis found = synthesise(task, options);
    EXPECT_LT(found.searched, 1) << until;
    EXPECT_GE(found.searched, until);
    EXPECT_GE(found.timing.makespan, least);
    EXPECT_LE(found.timing.makespan, fastest);
  }
}

TEST(Synthesis, same_again_and_refusals) {
  OrderTask task = even_task(v_placement(3), 6, {1, 1.2, .8}, 2.5, .05);
  const SynthesisOptions few{true, 2'000'000};
  EXPECT_EQ(synthesise(task, few).schedule, synthesise(task, few).schedule);
  EXPECT_NO_THROW(synthesise(task, {true, 0}));
  task.cap_bytes[1] = .9;
  EXPECT_THROW(synthesise(task, few), ConfigError);
  EXPECT_THROW(synthesise(even_task(two_way_placement(4), 8, {}, 8), few), ConfigError);
  task = even_task(v_placement(3), 6, {}, 3);
  task.times.stages.pop_back();
  EXPECT_THROW(synthesise(task, few), ConfigError);
  task = even_task(v_placement(3), 6, {}, 3);
  task.bytes[0].until_weight_grad = NAN;
  EXPECT_THROW(synthesise(task, few), ConfigError);
  task = even_task(v_placement(3), 6, {}, 3);
  task.times.hop = -1;
  EXPECT_THROW(synthesise(task, few), ConfigError);
}

}  // namespace

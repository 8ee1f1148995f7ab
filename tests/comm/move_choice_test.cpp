// Where experts had better live: nothing is lost, every holder keeps as many as it has places for, an expert keeps
// its place number, and what is chosen pays; an even load, or what moving costs more than, leaves all as it is.
#include "heddle/comm/placement/move_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "heddle/base/random.h"
#include "heddle/comm/placement/expert_placement.h"

namespace heddle::comm {
namespace {

std::vector<int> nodes_of(int64_t ranks, int64_t each) {
  std::vector<int> nodes;
  for (int64_t r = 0; r < ranks; ++r) nodes.push_back(static_cast<int>(r / each));
  return nodes;
}

std::vector<int32_t> in_order(int64_t experts) {
  std::vector<int32_t> positions(static_cast<size_t>(experts));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

std::vector<double> zipf(int64_t experts, double steepness, uint64_t seed) {
  std::vector<double> rows;
  for (int64_t e = 0; e < experts; ++e) rows.push_back(1000 * std::pow(1.0 + static_cast<double>(e), -steepness));
  const RandomKey key(seed);
  for (size_t i = rows.size(); i-- > 1;) std::swap(rows[i], rows[key.bits(i) % (i + 1)]);
  return rows;
}

MoveRules rules_of(double microbatches, int64_t expert_ps) {
  return {.placing = {.costs = {.row_ps = 1000,
                                .row_within_ps = 10,
                                .row_across_ps = 100,
                                .replica_within_ps = 100'000,
                                .replica_across_ps = 1'000'000}},
          .rows = 4096,
          .microbatches = microbatches,
          .expert_within_ps = expert_ps,
          .expert_across_ps = 10 * expert_ps};
}

std::vector<double> rows_of_holders(const std::vector<double>& rows_E, const std::vector<int32_t>& positions,
                                    int64_t holders) {
  const auto places = static_cast<int32_t>(std::ssize(rows_E) / holders);
  std::vector<double> rows(static_cast<size_t>(holders), 0);
  for (size_t e = 0; e < rows_E.size(); ++e) rows[static_cast<size_t>(positions[e] / places)] += rows_E[e];
  return rows;
}

double imbalance(const std::vector<double>& rows) {
  return *std::max_element(rows.begin(), rows.end()) * static_cast<double>(rows.size()) /
         std::accumulate(rows.begin(), rows.end(), 0.0);
}

TEST(MoveChoice, LosesNoExpertAndPays) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const RandomKey key(seed);
    const int64_t slices = 1 + static_cast<int64_t>(key.bits(0) % 2), holders_count = 2 << (key.bits(1) % 3);
    const int64_t experts = holders_count * (1 + static_cast<int64_t>(key.bits(2) % 8));
    const Holders holders{slices, static_cast<int64_t>(key.bits(3) % 3), nodes_of(holders_count * slices, 4)};
    const std::vector<double> rows = zipf(experts, 0.3 + 0.2 * static_cast<double>(seed % 5), seed);
    std::vector<int32_t> before = in_order(experts);
    for (size_t i = before.size(); i-- > 1;) std::swap(before[i], before[key.bits(100 + i) % (i + 1)]);
    const MoveRules rules = rules_of(10, 1'000'000);
    const MoveChoice choice = choose_moves(rows, before, holders, rules);
    EXPECT_TRUE(is_expert_placement(choice.position_of_E, experts));
    const int64_t places = experts / holders_count;
    int64_t moved = 0;
    for (size_t e = 0; e < before.size(); ++e) {
      EXPECT_EQ(choice.position_of_E[e] % places, before[e] % places) << "an expert has another place number";
      moved += choice.position_of_E[e] != before[e] ? 1 : 0;
    }
    EXPECT_EQ(choice.moved, moved);
    EXPECT_EQ(choice.moved > 0, choice.outcome == MoveOutcome::moved);
    if (choice.outcome == MoveOutcome::moved) {
      EXPECT_GT(static_cast<double>(choice.gain_ps) * rules.microbatches, static_cast<double>(choice.cost_ps));
      EXPECT_EQ(choice.cost_ps, moving_ps(before, choice.position_of_E, holders, rules));
      EXPECT_GT(choice.cost_ps, 0);
    } else {
      EXPECT_EQ(choice.position_of_E, before);
    }
    // The same again, from where they are now: what was worth doing is done.
    const MoveChoice again = choose_moves(rows, choice.position_of_E, holders, rules);
    EXPECT_LE(again.gain_ps, choice.gain_ps);
  }
}

TEST(MoveChoice, AnEvenLoadMovesNothing) {
  const Holders holders{1, 0, nodes_of(8, 4)};
  const MoveChoice choice = choose_moves(std::vector<double>(64, 5.0), in_order(64), holders, rules_of(1e9, 0));
  EXPECT_EQ(choice.outcome, MoveOutcome::even);
  EXPECT_EQ(choice.moved, 0);
}

// Two holders of two experts, 80 of 100 rows on the first: either exchange leaves 60 on one of them, and the first
// is taken. Then none leaves less.
TEST(MoveChoice, MovesAtTheBreakEven) {
  const Holders holders{1, 0, {0, 0}};
  MoveRules rules = rules_of(4, 0);
  rules.placing.costs = {.row_ps = 100};
  rules.rows = 100;  // of each of two sources: 160 on the fullest holder, then 120
  const std::vector<double> rows{50, 30, 10, 10};
  const int64_t gain = 40 * 100;
  rules.expert_within_ps = 4 * gain - 1;
  MoveChoice choice = choose_moves(rows, in_order(4), holders, rules);
  ASSERT_EQ(choice.outcome, MoveOutcome::moved);
  EXPECT_EQ(choice.gain_ps, gain);
  EXPECT_EQ(choice.position_of_E, (std::vector<int32_t>{2, 1, 0, 3}));
  rules.expert_within_ps = 4 * gain;
  choice = choose_moves(rows, in_order(4), holders, rules);
  EXPECT_EQ(choice.outcome, MoveOutcome::not_worth);
  EXPECT_EQ(choice.position_of_E, in_order(4));
}

TEST(MoveChoice, EvensOutWhatIsSteep) {
  const Holders holders{1, 0, nodes_of(8, 4)};
  double before = 0, after = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<double> rows = zipf(128, 0.8, seed);
    const MoveChoice choice = choose_moves(rows, in_order(128), holders, rules_of(1e6, 1));
    before = std::max(before, imbalance(rows_of_holders(rows, in_order(128), 8)));
    after = std::max(after, imbalance(rows_of_holders(rows, choice.position_of_E, 8)));
  }
  EXPECT_GT(before, 1.5);
  EXPECT_LT(after, 1.5);
}

// Two ranks are equally full: that of one alone gains nothing, but after both have given it does.
TEST(MoveChoice, TakesAllThatAreFullest) {
  const Holders holders{1, 0, nodes_of(4, 4)};
  const std::vector<double> rows{40, 40, 10, 40, 40, 10, 10, 10, 10, 10, 10, 10};
  const MoveChoice choice = choose_moves(rows, in_order(12), holders, rules_of(1e4, 1));
  ASSERT_EQ(choice.outcome, MoveOutcome::moved);
  EXPECT_EQ(rows_of_holders(rows, choice.position_of_E, 4), (std::vector<double>{60, 60, 60, 60}));
}

// Where copies even out what is within a node, experts move between nodes: all hot ones are on one.
TEST(MoveChoice, SpreadsHotExpertsOverNodesWhereCopiesDoTheRest) {
  const Holders holders{1, 2, nodes_of(8, 4)};
  std::vector<double> rows(64, 10.0);
  for (size_t e = 0; e < 32; e += 4) rows[e] = 60;  // one a holder of the first node has two
  const MoveChoice choice = choose_moves(rows, in_order(64), holders, rules_of(1e4, 1000));
  ASSERT_EQ(choice.outcome, MoveOutcome::moved);
  const std::vector<double> held = rows_of_holders(rows, choice.position_of_E, 8);
  const double first = std::accumulate(held.begin(), held.begin() + 4, 0.0);
  const double all = std::accumulate(held.begin(), held.end(), 0.0);
  EXPECT_NEAR(first / all, 0.5, 0.06);
}

TEST(ExpertPlacement, NumbersGoByHomes) {
  const ExpertPlacement positions({2, 0, 3, 1});
  const std::vector<int32_t> by_expert{10, 11, 12, 13, 20, 21, 22, 23};
  EXPECT_EQ(positions.by_position(std::span<const int32_t>(by_expert), 4),
            (std::vector<int32_t>{11, 13, 10, 12, 21, 23, 20, 22}));
  std::vector<int32_t> slots{0, -1, 2, 3};
  positions.name_experts(slots);
  EXPECT_EQ(slots, (std::vector<int32_t>{1, -1, 0, 2}));
  EXPECT_FALSE(is_expert_placement(std::vector<int32_t>{0, 0}, 2));
  EXPECT_FALSE(is_expert_placement(std::vector<int32_t>{0, 2}, 2));
}

}  // namespace
}  // namespace heddle::comm

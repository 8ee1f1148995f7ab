// What the first steps teach about a profile, on a machine whose steps follow from the profile by a formula.
#include "heddle/session/refit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace heddle::session {
namespace {

constexpr double kOps_us = 4000, kMessages_us = 1000;
const std::string kConfig = std::string(HEDDLE_SOURCE_DIR) + "/examples/demo.toml";

cost::MachineProfile profile(double scalar = 1) {
  cost::MachineProfile p;
  p.scalar = scalar;
  p.links.push_back({cost::Link::threads, 2, 1e6, kMessages_us});
  return p;
}

// Compute and messages take turns.
planner::ConfigPrediction predict(const config::RunConfig&, const cost::MachineProfile& p) {
  planner::ConfigPrediction found;
  simulate::RankResult rank;
  rank.streams.resize(1);
  rank.streams[0].busy_us = kOps_us * p.scalar;
  found.prediction.simulation.ranks = {rank};
  found.prediction.simulation.kind_of = {0};
  found.prediction.step_us = kOps_us * p.scalar + p.links[0].us;
  return found;
}

Refit refitted(const FirstSteps& seen, int ranks, double scalar = 1) {
  const std::vector<std::string> set{"mesh.ranks=" + std::to_string(ranks)};
  planner::PlanChoice choice;
  return refit(kConfig, set, choice, planner::PlanMode::automatic, profile(scalar), cost::Link::threads, predict,
               seen, 60);
}

TEST(Refit, OfOneRankMovesAllOpsHalfOfTheWay) {
  const double took_s = 2 * (kOps_us + kMessages_us) * 1e-6;
  const Refit found = refitted({took_s, 0}, 1);
  EXPECT_DOUBLE_EQ(found.profile.scalar, std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(found.profile.links[0].us, kMessages_us);
  EXPECT_DOUBLE_EQ(found.predicted_s, (kOps_us * std::sqrt(2.0) + kMessages_us) * 1e-6);
  EXPECT_FALSE(found.better);
}

TEST(Refit, OfSeveralRanksTellsOpsFromMessages) {
  const FirstSteps seen{(1.5 * kOps_us + 3 * kMessages_us) * 1e-6, 1.5 * kOps_us * 1e-6};
  const Refit found = refitted(seen, 2);
  EXPECT_DOUBLE_EQ(found.profile.scalar, std::sqrt(1.5));
  EXPECT_NEAR(found.profile.links[0].us, kMessages_us * std::sqrt(3.0), 0.03 * kMessages_us);
  const double before_s = (kOps_us + kMessages_us) * 1e-6;
  EXPECT_LT(std::abs(found.predicted_s - seen.step_s), std::abs(before_s - seen.step_s));
}

TEST(Refit, WhatNoMessageExplainsIsTheOps) {
  const FirstSteps seen{1.1 * kOps_us * 1e-6, 1.5 * kOps_us * 1e-6};  // shorter than its ops
  const Refit found = refitted(seen, 2);
  EXPECT_DOUBLE_EQ(found.profile.links[0].us, kMessages_us);
  EXPECT_DOUBLE_EQ(found.profile.scalar, std::sqrt(1.1 * kOps_us / (kOps_us + kMessages_us)));
}

// A step that took a hundred times as long says more about who else was there than about the machine.
TEST(Refit, OneRunMovesItByNoMoreThanTwo) {
  const double took_s = 100 * (kOps_us + kMessages_us) * 1e-6;
  EXPECT_DOUBLE_EQ(refitted({took_s, 0}, 1).profile.scalar, 2);
  EXPECT_DOUBLE_EQ(refitted({took_s, 0}, 1, 3).profile.scalar, 4);  // the most that a scalar can be
}

}  // namespace
}  // namespace heddle::session

// How often to copy: Daly's interval by hand, and what a run's steps and copies say about it.
#include "heddle/session/agent/frequency.h"

#include <gtest/gtest.h>

#include <cmath>

namespace heddle::session {
namespace {

TEST(Frequency, IsDalysInterval) {
  // √(2 × 1 × 200) = 20 and √(1 / 400) = 1/20: 20 × (1 + 1/60 + 1/3600) − 1
  EXPECT_NEAR(daly_interval_s(1, 200), 19 + 20.0 / 60 + 20.0 / 3600, 1e-12);
  EXPECT_NEAR(daly_interval_s(18, 36), 36 * (1 + 0.5 / 3 + 0.25 / 9) - 18, 1e-12);
  EXPECT_DOUBLE_EQ(daly_interval_s(72, 36), 36);  // what is twice the time between failures, or more
  EXPECT_DOUBLE_EQ(daly_interval_s(1e6, 36), 36);
  const double young_s = std::sqrt(2 * 1e-3 * 1e5);
  EXPECT_NEAR(daly_interval_s(1e-3, 1e5), young_s, 1e-3 * young_s);
}

// No other interval loses less: a copy each, and with a failure half of what lies between two.
TEST(Frequency, IsTheIntervalThatLosesLeast) {
  for (const double cost_s : {0.01, 1.0, 20.0}) {
    const double between_s = 3600, best_s = daly_interval_s(cost_s, between_s);
    const auto lost = [&](double interval_s) {  // Daly's equation 13: the wall time of a second of work
      return between_s * std::expm1((interval_s + cost_s) / between_s) / interval_s;
    };
    for (const double factor : {0.5, 0.8, 1.25, 2.0}) EXPECT_LT(lost(best_s), lost(best_s * factor)) << cost_s;
  }
}

SnapshotFrequency after_steps(double between_failures_s) {
  SnapshotFrequency f(between_failures_s);
  f.step(100, true);  // the first, which also sets up
  for (int i = 1; i < SnapshotFrequency::kLearned; ++i) f.step(i % 2 == 0 ? 1.5 : 1.0, i % 2 == 0);
  return f;
}

TEST(Frequency, CostsWhatStepsWithACopyAreLongerBy) {
  SnapshotFrequency f = after_steps(400);
  EXPECT_EQ(f.steps(), SnapshotFrequency::kLearned);
  EXPECT_DOUBLE_EQ(f.step_s(), 1);
  EXPECT_EQ(f.copy_every(), 0) << "no copy was told of";
  EXPECT_EQ(f.save_every(), 0);
  f.copy_blocked(0.1);
  EXPECT_DOUBLE_EQ(f.copy_s(), 0.5);
  EXPECT_EQ(f.copy_every(), 20);  // 20 × (1 + 1/120 + 1/14400) − 0.5 = 19.67
  for (int i = 0; i < 2; ++i) f.copy_blocked(2);
  EXPECT_DOUBLE_EQ(f.copy_s(), 2) << "no less than what it kept the rank waiting";
  f.saved(8);
  EXPECT_EQ(f.save_every(), 75);  // 80 × (1 + 1/30 + 1/900) − 8 = 74.76
}

TEST(Frequency, IsAStepAtLeast) {
  SnapshotFrequency f = after_steps(0.001);
  f.copy_blocked(3);
  EXPECT_EQ(f.copy_every(), 1);
  EXPECT_TRUE(f.chooses());
  EXPECT_FALSE(SnapshotFrequency(0).chooses());
}

TEST(Frequency, WithACopyInEachStepCountsWhatBlocked) {
  SnapshotFrequency f(800);
  for (int i = 0; i < SnapshotFrequency::kLearned; ++i) {
    f.step(2, true);
    f.copy_blocked(1);
  }
  EXPECT_DOUBLE_EQ(f.step_s(), 2);
  EXPECT_EQ(f.copy_every(), 20);  // (40 × (1 + 1/120 + 1/14400) − 1) / 2 = 19.67
}

}  // namespace
}  // namespace heddle::session

// The length of a run in steps and by the clock, and the rates that follow it.
#include "heddle/config/run_length.h"

#include <gtest/gtest.h>

#include "heddle/config/bias_rate.h"
#include "heddle/config/falling_bias_rate.h"
#include "heddle/config/learning_rate.h"

namespace heddle::config {
namespace {

TEST(LearningRate, WarmsUpAndDecaysOverSteps) {
  const RunLength length{100};
  const LearningRate wsd{LearningRate::Shape::wsd, 1.0, 0.1, 10, 20};
  EXPECT_DOUBLE_EQ(wsd.at(length, {0}), 0.1);
  EXPECT_DOUBLE_EQ(wsd.at(length, {9}), 1.0);
  EXPECT_DOUBLE_EQ(wsd.at(length, {79}), 1.0);
  EXPECT_NEAR(wsd.at(length, {89}), 0.55, 1e-12);
  EXPECT_NEAR(wsd.at(length, {99}), 0.1, 1e-12);
  const LearningRate cosine{LearningRate::Shape::cosine, 1.0, 0.0, 0, 0};
  EXPECT_NEAR(cosine.at(length, {49}), 0.5, 1e-12);
  EXPECT_NEAR(cosine.at(length, {99}), 0.0, 1e-12);
}

TEST(LearningRate, FallsInALineOrAsTheRootOfSteps) {
  const RunLength length{100};
  const LearningRate line{LearningRate::Shape::linear, 1.0, 0.1, 10, 0};
  EXPECT_DOUBLE_EQ(line.at(length, {9}), 1.0);
  EXPECT_NEAR(line.at(length, {54}), 0.55, 1e-12);
  EXPECT_NEAR(line.at(length, {99}), 0.1, 1e-12);
  const LearningRate root{LearningRate::Shape::inverse_sqrt, 1.0, 0.35, 10, 0};
  EXPECT_DOUBLE_EQ(root.at(length, {4}), 0.5) << "while it warms up";
  EXPECT_DOUBLE_EQ(root.at(length, {9}), 1.0);
  EXPECT_NEAR(root.at(length, {39}), 0.5, 1e-12);
  EXPECT_NEAR(root.at(length, {99}), 0.35, 1e-12) << "no lower";
  const LearningRate at_once{LearningRate::Shape::inverse_sqrt, 1.0, 0.0, 0, 0};
  EXPECT_DOUBLE_EQ(at_once.at(length, {0}), 1.0);
  EXPECT_DOUBLE_EQ(at_once.at(length, {3}), 0.5);
}

TEST(LearningRate, SaysWhatIsLeftOfItsPeak) {
  const LearningRate wsd{LearningRate::Shape::wsd, 2.0, 0.2, 10, 20};
  const RunLength length{100};
  EXPECT_EQ(wsd.left(length, {2}), 1) << "while it warms up";
  EXPECT_EQ(wsd.left(length, {50}), 1);
  EXPECT_DOUBLE_EQ(wsd.left(length, {89}), wsd.at(length, {89}) / 2);
  EXPECT_DOUBLE_EQ(wsd.left(length, {99}), 0.1);
}

TEST(LearningRate, FollowsTheClock) {
  // Steps of a second are the same run as that many steps, but for the first, whose time nobody knows yet.
  const RunLength steps{100}, clock{0, 100};
  for (const auto shape : {LearningRate::Shape::wsd, LearningRate::Shape::cosine, LearningRate::Shape::constant,
                           LearningRate::Shape::linear, LearningRate::Shape::inverse_sqrt}) {
    const LearningRate rate{shape, 1.0, 0.1, 10, 20};
    for (int64_t n = 1; n < 100; ++n)
      EXPECT_NEAR(rate.at(clock, {n, static_cast<double>(n)}), rate.at(steps, {n}), 1e-12) << n;
    EXPECT_GT(rate.at(clock, {}), 0);
  }
  // Slower steps are fewer and go further each.
  const LearningRate wsd{LearningRate::Shape::wsd, 1.0, 0.1, 10, 20};
  EXPECT_NEAR(wsd.at(clock, {1, 4.0}), 0.8, 1e-12);
  EXPECT_NEAR(wsd.at(clock, {22, 88.0}), 0.1 + 0.9 * 0.4, 1e-12);
  EXPECT_NEAR(wsd.at(clock, {25, 100.0}), 0.1, 1e-12);
}

TEST(RunLength, IsReachedBySteps) {
  const RunLength length{3};
  EXPECT_FALSE(length.by_clock());
  EXPECT_FALSE(length.reached({2, 1e9}));
  EXPECT_TRUE(length.reached({3, 0}));
  EXPECT_NEAR(length.share({1, 5}), 1.0 / 3, 1e-12);
}

TEST(RunLength, IsReachedByTheClock) {
  const RunLength length{0, 60};
  EXPECT_FALSE(length.reached({}));
  EXPECT_FALSE(length.reached({1000, 59.9}));
  EXPECT_TRUE(length.reached({1, 60}));
  EXPECT_EQ(length.share({1, 90}), 1);
  EXPECT_DOUBLE_EQ(length.expected_steps({4, 2.0}), 120);
}

TEST(FallingBiasRate, ArrivesWithinTheWarmupOfARunOfAnyLength) {
  for (const int64_t steps : {100, 640, 4000}) {
    const auto warmup = static_cast<double>(steps / 10);
    const FallingBiasRate rate{warmup};
    double travelled = 0;
    for (int64_t done = 0; done < steps / 10; ++done) travelled += rate.at({steps}, {done, 0});
    EXPECT_NEAR(travelled, FallingBiasRate::kTravel, 0.01) << steps;
    EXPECT_LE(rate.at({steps}, {steps - 1, 0}), std::max(BiasRate::kLeast, 0.2 * rate.at({steps}, {}))) << steps;
    EXPECT_GE(rate.at({steps}, {steps - 1, 0}), BiasRate::kLeast);
  }
  EXPECT_EQ((FallingBiasRate{0}.at({5}, {})), FallingBiasRate::kMost);
}

TEST(BiasRate, TravelsAsFarInARunOfAnyLength) {
  const BiasRate open;
  EXPECT_NEAR(open.at({640}, {}), 0.01, 1e-12);
  EXPECT_NEAR(open.at({1280}, {17, 3.0}), 0.005, 1e-12);
  EXPECT_EQ(open.at({200'000}, {}), 0.001) << "long runs: the report's rate";
  EXPECT_EQ(open.at({20}, {}), BiasRate::kMost);
  EXPECT_NEAR(open.at({0, 100}, {64, 10.0}), 0.01, 1e-12) << "640 steps are to be expected";
  EXPECT_EQ((BiasRate{0.5}.at({640}, {})), 0.5);
  EXPECT_NEAR(open.at({640}, {600, 6.0}, 0.25), 0.0025, 1e-12) << "it falls with the learning rate";
  EXPECT_EQ((BiasRate{0.5}.at({640}, {600, 6.0}, 0.25)), 0.5);
}

}  // namespace
}  // namespace heddle::config

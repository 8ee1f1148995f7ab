// How long ranks wait for one another goes by what comes, not by what was.
#include "heddle/session/ranks/patience.h"

#include <gtest/gtest.h>

namespace heddle::session {
namespace {

struct ControlMessage {
  double limit_s = 0;
  Patience patience{[this](double limit) { limit_s = limit; }};
};

TEST(Patience, TheStepBehindACheckpointHasAStepsLimit) {
  ControlMessage t;
  t.patience.step(8);
  EXPECT_EQ(t.limit_s, Patience::kAnything_s) << "nothing is known of the first";
  t.patience.stepped(10, 8);
  t.patience.step(8);
  EXPECT_EQ(t.limit_s, 200) << "of the first, until there is a second";
  t.patience.stepped(0.1, 8);
  t.patience.step(8);
  EXPECT_EQ(t.limit_s, Patience::kLeastStep_s);
  t.patience.save();
  EXPECT_EQ(t.limit_s, Patience::kLeastSave_s);
  t.patience.saved(200);
  t.patience.step(8);
  EXPECT_EQ(t.limit_s, Patience::kLeastStep_s) << "however long the checkpoint took";
}

TEST(Patience, LongStepsAndLargerBatchesTakeLonger) {
  ControlMessage t;
  t.patience.stepped(100, 4);
  t.patience.stepped(40, 4);
  t.patience.stepped(20, 4);
  EXPECT_EQ(t.patience.step_limit_s(4), 800) << "twenty times the longest";
  EXPECT_EQ(t.patience.step_limit_s(16), 3200);
}

TEST(Patience, ACheckpointsGoesByItsBytes) {
  ControlMessage t;
  t.patience.of_state(int64_t{1} << 40, 4);
  EXPECT_NEAR(t.patience.save_limit_s(), 2 * 0x1p38 / 1e7, 1);
  t.patience.of_state(1000, 1);
  EXPECT_EQ(t.patience.save_limit_s(), Patience::kLeastSave_s);
  t.patience.saved(100);
  EXPECT_EQ(t.patience.save_limit_s(), 2000) << "a slow disk is known by then";
}

TEST(Patience, ALooksGoesByItsLength) {
  ControlMessage t;
  t.patience.stepped(5, 1);
  t.patience.stepped(1, 1);
  const double none_s = t.patience.look_limit_s(0, 0);
  EXPECT_EQ(t.patience.look_limit_s(100, 0) - none_s, 20 * 5 * 100);
  EXPECT_EQ(t.patience.look_limit_s(100, 50) - none_s, 20 * 5 * 150);
}

}  // namespace
}  // namespace heddle::session

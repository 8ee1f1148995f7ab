// The progress bar: what a terminal, and what a file gets to see.
#include "heddle/observe/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "heddle/observe/table.h"

namespace heddle::observe {
namespace {

StepMetrics metrics_at(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.set(figures::kLoss, 3.25);
  metrics.set(figures::kLearningRate, 2.2e-4);
  metrics.set(figures::kGradientNorm, 0.8125);
  metrics.set(figures::kTokensPerSecond, 12345);
  metrics.set(figures::kFlopsPerSecond, 1.2e12);
  metrics.set(figures::kArenaReservedPeak, 3.0 * (1 << 30));
  metrics.set(figures::kImbalance, 1.375);
  return metrics;
}

struct Screen {
  std::string text;
  int columns = 200;
  Progress progress(Terminal terminal, int64_t total = 100) {
    return Progress(
        {.total_steps = total, .redraw_every_s = 0}, terminal, [this](std::string_view bytes) { text += bytes; },
        [this] { return columns; });
  }
};

TEST(ProgressLines, OneEveryTenStepsOffATerminal) {
  Screen screen;
  Progress progress = screen.progress({});
  for (int i = 1; i <= 25; ++i) progress.update(metrics_at(i), i * 2.0);
  progress.line("saved");
  progress.finish();
  EXPECT_EQ(
      screen.text,
      "step 1/100  loss 3.2500  lr 2.2e-04  grad 0.812  12.3 Ktok/s  1.2 TFLOP/s  peak 3.0 GiB  experts 1.38x\n"
      "step 11/100  loss 3.2500  lr 2.2e-04  grad 0.812  12.3 Ktok/s  1.2 TFLOP/s  peak 3.0 GiB  experts 1.38x  "
      "ETA 2:58\n"
      "step 21/100  loss 3.2500  lr 2.2e-04  grad 0.812  12.3 Ktok/s  1.2 TFLOP/s  peak 3.0 GiB  experts 1.38x  "
      "ETA 2:38\n"
      "saved\n");
  EXPECT_EQ(screen.text.find('\x1b'), std::string::npos);
}

TEST(ProgressLines, AsOftenAsAskedAndQuiet) {
  std::string text;
  const auto of = [&](ProgressOptions options, Terminal terminal = {}) {
    text.clear();
    options.total_steps = 100;
    return Progress(
        options, terminal, [&](std::string_view bytes) { text += bytes; }, [] { return 60; });
  };
  const auto count = [&](const std::string& what) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  Progress each = of({.line_every_steps = 1}, {.interactive = true});
  for (int i = 1; i <= 5; ++i) each.update(metrics_at(i), i);
  EXPECT_EQ(count("/100  loss"), 5u) << "above the bar of a terminal too: " << text;
  Progress quiet = of({.quiet = true});
  quiet.update(metrics_at(1), 1);
  quiet.line("said");
  quiet.warning("of this");
  EXPECT_EQ(text, "warning: of this\n");
  Progress stamped = of({.timestamps = true});
  stamped.line("said");
  ASSERT_EQ(text.size(), std::string("2026-11-22 15:45:10  said\n").size()) << text;
  EXPECT_EQ(text.substr(13, 1), ":");
  EXPECT_TRUE(text.ends_with("  said\n"));
}

TEST(ProgressBar, DrawsBlocks) {
  Screen screen;
  Progress progress = screen.progress({.interactive = true, .colour = false, .unicode = true});
  StepMetrics metrics;
  metrics.step = 55;
  metrics.set(figures::kLoss, 1);
  progress.update(metrics, 0);
  EXPECT_EQ(screen.text, "\r\x1b[K 55/100 ████████████████▌               55%  loss 1.0000");
  screen.text.clear();
  metrics.step = 100;
  progress.update(metrics, 1);
  progress.finish();
  progress.finish();
  EXPECT_EQ(screen.text.substr(screen.text.rfind('\r')),
            "\r\x1b[K100/100 ██████████████████████████████ 100%  loss 1.0000  ETA 0:00\n");
}

TEST(ProgressBar, FollowsTheClock) {
  Screen screen;
  Progress progress(
      {.first_step = 3, .first_s = 6, .total_s = 200}, {.interactive = false},
      [&](std::string_view text) { screen.text += text; }, [] { return 80; });
  StepMetrics metrics;
  metrics.set(figures::kLoss, 1);
  metrics.step = 4;
  metrics.set(figures::kTrainedSeconds, 50);
  metrics.set(figures::kStepSeconds, 44);
  progress.update(metrics, 0);
  EXPECT_EQ(screen.text, "step 4, 0:50/3:20  loss 1.0000  ETA 2:30\n");
  screen.text.clear();
  metrics.step = 5;
  metrics.set(figures::kTrainedSeconds,
              201.5);  // the last step ends after the time is up
  progress.update(metrics, 160);
  EXPECT_EQ(screen.text, "step 5, 3:20/3:20  loss 1.0000  ETA 0:00\n");
}

TEST(ProgressBar, NeverWiderThanTheTerminal) {
  for (const bool unicode : {false, true}) {
    for (int columns = 1; columns < 220; ++columns) {
      Screen screen;
      screen.columns = columns;
      Progress progress = screen.progress({.interactive = true, .colour = false, .unicode = unicode}, 100000);
      progress.update(metrics_at(50000), 0);
      progress.update(metrics_at(50001), 3600);
      const std::string last = screen.text.substr(screen.text.rfind("\x1b[K") + 3);
      EXPECT_LE(display_width(last), columns - 1) << columns << ": " << last;
      if (columns > 45) {
        EXPECT_NE(last.find("loss"), std::string::npos) << "the loss goes last";
      }
    }
  }
}

TEST(ProgressBar, LogLinesStandAbove) {
  Screen screen;
  Progress progress = screen.progress({.interactive = true});
  progress.line("before");
  progress.update(metrics_at(1), 0);
  screen.text.clear();
  progress.line("hello");
  EXPECT_TRUE(screen.text.starts_with("\r\x1b[Khello\n  1/100 ")) << screen.text;
  progress.finish();
  screen.text.clear();
  progress.line("after");
  EXPECT_EQ(screen.text, "after\n");
}

TEST(ProgressBar, LinesFromManyThreadsStayWhole) {
  Screen screen;
  Progress progress = screen.progress({.interactive = true});
  progress.update(metrics_at(1), 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) progress.line("a whole line");
    });
  }
  for (int i = 2; i < 100; ++i) progress.update(metrics_at(i), i);
  for (std::thread& thread : threads) thread.join();
  int lines = 0;
  for (size_t at = 0; (at = screen.text.find("\r\x1b[Ka whole line\n", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 200);
}

TEST(ProgressBar, ColourOnlyWhereAsked) {
  for (const bool colour : {false, true}) {
    Screen screen;
    Progress progress = screen.progress({.interactive = true, .colour = colour});
    progress.update(metrics_at(1), 0);
    EXPECT_EQ(screen.text.find("\x1b[32m") != std::string::npos, colour);
  }
}

TEST(ProgressBar, DescribesTheTerminal) {
  ::setenv("NO_COLOR", "1", 1);
  ::setenv("LC_ALL", "C.UTF-8", 1);
  const Terminal file = describe_terminal(-1);
  EXPECT_FALSE(file.interactive);
  EXPECT_FALSE(file.colour);
  EXPECT_TRUE(file.unicode);
  ::setenv("LC_ALL", "C", 1);
  EXPECT_FALSE(describe_terminal(-1).unicode);
  EXPECT_EQ(terminal_columns(-1, 77), 77);
  ::unsetenv("NO_COLOR");
  ::unsetenv("LC_ALL");
}

TEST(ProgressBar, ShowsDivergence) {
  Screen screen;
  Progress progress = screen.progress({.interactive = true, .colour = true});
  StepMetrics metrics = metrics_at(1);
  metrics.set(figures::kLoss, std::numeric_limits<double>::quiet_NaN());
  progress.update(metrics, 0);
  EXPECT_NE(screen.text.find("\x1b[1;31mloss nan"), std::string::npos);
}

TEST(Eta, FirstEstimateIsTheFirstStep) {
  EtaEstimate eta;
  EXPECT_TRUE(std::isnan(eta.remaining_s(10)));
  eta.add(2, 1);
  EXPECT_DOUBLE_EQ(eta.remaining_s(10), 20);
  eta.add(-1, 1);
  eta.add(std::numeric_limits<double>::quiet_NaN(), 1);
  EXPECT_DOUBLE_EQ(eta.remaining_s(10), 20) << "a clock that went back teaches nothing";
}

TEST(Eta, SlowStartIsForgotten) {
  EtaEstimate eta;
  eta.add(60, 1);
  for (int i = 0; i < 200; ++i) eta.add(1, 1);
  EXPECT_NEAR(eta.remaining_s(1), 1, 0.05);
  // Half of the weight is with the last 20 steps.
  EtaEstimate two;
  for (int i = 0; i < 1000; ++i) two.add(1, 1);
  for (int i = 0; i < 20; ++i) two.add(3, 1);
  EXPECT_NEAR(two.remaining_s(1), 2, 1e-6);
}

}  // namespace
}  // namespace heddle::observe

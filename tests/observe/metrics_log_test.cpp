// The log of steps: what is written is what is read, after a crash and on a full disk too.
#include "heddle/observe/metrics_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "heddle/base/error.h"
#include "heddle/observe/experts/load_frames.h"

namespace heddle::observe {
namespace {

class MetricsLogTest : public ::testing::Test {
 protected:
  std::string path_ = (std::filesystem::temp_directory_path() /
                       fmt::format("heddle-metrics-{}-{}.jsonl", ::getpid(),
                                   ::testing::UnitTest::GetInstance()->current_test_info()->name()))
                          .string();
  void SetUp() override { std::filesystem::remove(path_); }
  void TearDown() override { std::filesystem::remove(path_); }

  void put(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(path_, std::ios::binary).rdbuf();
    return out.str();
  }
};

StepMetrics step(int64_t number, double loss) {
  StepMetrics metrics;
  metrics.step = number;
  metrics.wall_time_s = 1.5;
  metrics.set(figures::kLoss, loss);
  return metrics;
}

Figures layer(double rows) {
  Figures told;
  told.set_list(figures::kExpertLoads, {rows, 1});
  told.set_list(figures::kRoutedRows, {6, 2});
  told.set_list(figures::kComputedRows, {5, 3});
  told.set(figures::kReplicaRows, rows);
  told.set(figures::kReplicaWeightBytes, 64);
  told.set(figures::kReplicasByCounts, 2);
  return told;
}

TEST_F(MetricsLogTest, GoldenLine) {
  StepMetrics metrics = step(7, 3.25);
  metrics.set(figures::kLearningRate, 2.2e-4);
  metrics.set(figures::kGradientNorm, std::numeric_limits<double>::infinity());
  metrics.set(figures::kTokens, 4096);
  metrics.set(figures::kChannelSeconds, "comm.dp", 12.5);
  metrics.layers.resize(2);
  metrics.layers[0].set_list(figures::kExpertLoads, {1, 2});
  metrics.layers[1].set_list(figures::kExpertLoads, {3, 0});
  EXPECT_EQ(
      metrics_line(metrics),
      R"({"step":7,"wall_time_s":1.5,"tokens":4096,"lm_loss":3.25,"learning_rate":0.00022,"gradient_norm":"inf",)"
      R"("extra":{"comm.dp_seconds":12.5},"expert_loads":[[1,2],[3,0]]})");
}

TEST_F(MetricsLogTest, ReadsWhatItWrote) {
  {
    MetricsLog log = MetricsLog::begin(path_);
    for (int i = 1; i <= 3; ++i) {
      StepMetrics metrics = step(i, 1.0 / i);
      metrics.set(figures::kRewardMargin, -1e300);
      metrics.set(figures::kDroppedShare, "3", 0.25);
      metrics.layers = {layer(i)};
      add_layers(metrics, figures::kCopies);
      log.add(metrics);
    }
    log.add(step(4, std::numeric_limits<double>::quiet_NaN()));
  }
  const MetricsHistory history = read_metrics(path_);
  EXPECT_TRUE(history.warnings.empty());
  ASSERT_EQ(history.steps.size(), 4u);
  EXPECT_EQ(history.steps[2].get(figures::kLoss), 1.0 / 3) << "doubles survive exactly";
  EXPECT_EQ(history.steps[2].get(figures::kRewardMargin), -1e300);
  EXPECT_EQ(history.steps[2].family(figures::kDroppedShare),
            (std::vector<Figures::Number>{{&figures::kDroppedShare, "3", 0.25}}));
  EXPECT_TRUE(std::isnan(history.steps[3].get(figures::kLoss).value()));
  EXPECT_FALSE(history.steps[3].has(figures::kGradientNorm));
  for (const size_t i : {0u, 2u}) {
    const auto n = static_cast<double>(i + 1);
    EXPECT_EQ(history.steps[i].layers, std::vector<Figures>{layer(n)});
    EXPECT_EQ(history.steps[i].get(figures::kReplicaRows), n);
  }
  EXPECT_FALSE(history.steps[3].has(figures::kReplicaRows));
}

TEST_F(MetricsLogTest, TornLastLineIsDroppedWithAWarning) {
  const std::string whole = metrics_line(step(1, 2)) + "\n";
  const std::string next = metrics_line(step(2, 1.9));
  // Torn anywhere, even right before the line's end.
  for (size_t length = 1; length <= next.size(); ++length) {
    put(whole + next.substr(0, length));
    const MetricsHistory history = read_metrics(path_);
    ASSERT_EQ(history.steps.size(), 1u);
    ASSERT_EQ(history.warnings.size(), 1u);
    EXPECT_NE(history.warnings[0].find("torn"), std::string::npos);
  }
  std::vector<std::string> warnings;
  MetricsLog::resume(path_, 2, warnings).add(step(2, 1.8));
  EXPECT_EQ(warnings.size(), 1u);
  EXPECT_EQ(text(), whole + metrics_line(step(2, 1.8)) + "\n");
}

TEST_F(MetricsLogTest, ResumeCutsStepsThatRunAgain) {
  put(metrics_line(step(1, 3)) + "\n" + metrics_line(step(2, 2)) + "\n" + metrics_line(step(3, 1)) + "\n{\"st");
  std::vector<std::string> warnings;
  MetricsLog::resume(path_, 2, warnings).add(step(2, 2.5));
  EXPECT_EQ(warnings.size(), 1u);
  EXPECT_EQ(text(), metrics_line(step(1, 3)) + "\n" + metrics_line(step(2, 2.5)) + "\n");
  MetricsLog::resume(path_, 3, warnings).add(step(3, 1.5));
  EXPECT_EQ(warnings.size(), 1u) << "nothing to cut, nothing to say";
  EXPECT_EQ(read_metrics(path_).steps.size(), 3u);
}

TEST_F(MetricsLogTest, ResumeWithoutALogBeginsOne) {
  std::vector<std::string> warnings;
  MetricsLog::resume(path_, 1, warnings).add(step(1, 2));
  EXPECT_EQ(read_metrics(path_).steps.size(), 1u);
}

TEST_F(MetricsLogTest, WhatIsMissingIsRemarked) {
  const auto log_of = [&](const std::vector<int64_t>& steps) {
    std::string text;
    for (const int64_t s : steps) text += metrics_line(step(s, 1)) + "\n";
    put(text);
  };
  const auto on_reading = [&] { return read_metrics(path_).warnings; };
  const auto on_going_on = [&](int64_t next) {
    std::vector<std::string> warnings;
    MetricsLog::resume(path_, next, warnings).add(step(next, 1));
    return warnings;
  };
  log_of({1, 2, 5, 6, 8});
  ASSERT_EQ(on_reading().size(), 1u);
  EXPECT_EQ(on_reading()[0], path_ + ": 3 steps have no line, the first is 3");
  EXPECT_EQ(on_going_on(9), on_reading());
  log_of({2});
  EXPECT_EQ(on_reading(), std::vector<std::string>{path_ + ": step 1 has no line"});
  log_of({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_TRUE(on_reading().empty());
  const std::vector<std::string> beyond = on_going_on(401);
  ASSERT_EQ(beyond.size(), 1u);
  EXPECT_NE(beyond[0].find("the log ends with step 8, and the run goes on after step 400"), std::string::npos);
  std::filesystem::remove(path_);
  const std::vector<std::string> gone = on_going_on(7);
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_NE(gone[0].find("the log is gone"), std::string::npos);
}

TEST_F(MetricsLogTest, LaterOfTwinStepsHolds) {
  put(metrics_line(step(1, 3)) + "\n" + metrics_line(step(2, 2)) + "\n" + metrics_line(step(2, 1)) + "\n");
  const MetricsHistory history = read_metrics(path_);
  ASSERT_EQ(history.steps.size(), 2u);
  EXPECT_EQ(history.steps[1].get(figures::kLoss), 1.0);
  EXPECT_EQ(history.warnings.size(), 1u);
}

TEST_F(MetricsLogTest, BrokenLinesNameTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"nonsense\n", "not a JSON object"},
      {"[1]\n", "array"},
      {"{}\n", "step"},
      {"{\"step\":-1}\n", "step"},
      {"{\"step\":18446744073709551615}\n", "step"},
      {"{\"step\":1.5}\n", "step"},
      {"{\"step\":1,\"lm_loss\":\"low\"}\n", "lm_loss"},
      {"{\"step\":1,\"extra\":[1]}\n", "extra"},
      {"{\"step\":1,\"extra\":{\"x\":{}}}\n", "'x'"},
      {"{\"step\":1,\"expert_loads\":[1]}\n", "expert_loads"},
      {std::string(100'000, '[') + "\n", "not a JSON object"},
      {"\n", "not a JSON object"},
      {std::string(17 << 20, ' '), "more than"},
  };
  for (const auto& [line, said] : cases) {
    put("{\"step\":0}\n" + line);
    try {
      read_metrics(path_);
      ADD_FAILURE() << "accepted " << line.substr(0, 40);
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(path_ + ":2: "), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(said), std::string::npos) << error.what();
    }
  }
}

TEST_F(MetricsLogTest, BrokenLinesDoNotKeepARunFromGoingOn) {
  const std::string one = metrics_line(step(1, 3)) + "\n", two = metrics_line(step(2, 2)) + "\n";
  const std::string endless = std::string(17 << 20, 'x') + "\n";
  for (const std::string& broken :
       {std::string("nonsense\n"), std::string("\0\0\n", 3), std::string("{}\n"), endless}) {
    put(one + broken + two + broken + metrics_line(step(3, 1)) + "\n");
    const MetricsHistory history = read_metrics(path_, BrokenLines::skip);
    EXPECT_EQ(history.steps.size(), 3u);
    ASSERT_EQ(history.warnings.size(), 1u);
    EXPECT_EQ(history.warnings[0].find(path_ + ":2: "), 0u) << history.warnings[0];
    EXPECT_NE(history.warnings[0].find("this and 1 more lines are skipped"), std::string::npos);
    std::vector<std::string> warnings;
    MetricsLog::resume(path_, 3, warnings).add(step(3, 0.5));
    EXPECT_EQ(warnings.size(), 2u) << "what is broken, and what was cut";
    EXPECT_EQ(text(), one + broken + two + broken + metrics_line(step(3, 0.5)) + "\n");
  }
  put(one + endless.substr(0, endless.size() - 1));
  std::vector<std::string> warnings;
  MetricsLog::resume(path_, 2, warnings).add(step(2, 2));
  EXPECT_EQ(text(), one + two) << "too long and torn";
}

TEST_F(MetricsLogTest, UnknownKeysAreSkipped) {
  put("{\"step\":3,\"new_figure\":{\"a\":[1]},\"lm_loss\":null}\n");
  const MetricsHistory history = read_metrics(path_);
  ASSERT_EQ(history.steps.size(), 1u);
  EXPECT_FALSE(history.steps[0].has(figures::kLoss));
}

TEST_F(MetricsLogTest, FilesThatCantBeOpenedAreSystemErrors) {
  EXPECT_THROW(read_metrics(path_), SystemError);
  EXPECT_THROW(read_metrics("/"), SystemError);
  EXPECT_THROW(MetricsLog::begin("/nowhere/at/all.jsonl"), SystemError);
}

TEST_F(MetricsLogTest, FullDiskIsASystemError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  MetricsLog log = MetricsLog::begin("/dev/full");
  try {
    log.add(step(1, 1));
    FAIL() << "a full disk took a line";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code, ENOSPC);
  }
}

// A long run keeps the figures of layers of few steps, spread over it, and those of the last; a log that was cut
// goes on as if it had never had what was cut.
TEST(LoadFrames, AreSpreadOverTheRun) {
  std::vector<StepMetrics> steps;
  LoadFrames frames;
  const auto add = [&](int64_t number) {
    StepMetrics& step = steps.emplace_back();
    step.step = number;
    step.layers.resize(1);
    frames.added(steps);
  };
  const auto kept = [&] {
    std::vector<int64_t> numbers;
    for (const StepMetrics& step : steps) {
      if (!step.layers.empty()) numbers.push_back(step.step);
    }
    return numbers;
  };
  for (int64_t i = 1; i <= 1000; ++i) add(i);
  for (const size_t size : {1000u, 500u}) {
    const std::vector<int64_t> numbers = kept();
    EXPECT_EQ(numbers.front(), 1);
    EXPECT_EQ(numbers.back(), steps.back().step);
    EXPECT_LE(numbers.size(), LoadFrames::kMost);
    EXPECT_GE(numbers.size(), size == 1000u ? LoadFrames::kMost / 2 : LoadFrames::kMost / 4);
    for (size_t i = 2; i + 1 < numbers.size(); ++i) EXPECT_EQ(numbers[i] - numbers[i - 1], numbers[1] - numbers[0]);
    steps.resize(500);
    frames.cut(steps.size());
    add(501);
  }
  std::vector<StepMetrics> sparse;
  LoadFrames of_looks;
  for (int64_t i = 0; i < 100; ++i) {
    StepMetrics& step = sparse.emplace_back();
    step.step = 1 + 50 * i;
    step.layers.resize(1);
    of_looks.added(sparse);
  }
  const auto with =
      std::count_if(sparse.begin(), sparse.end(), [](const StepMetrics& step) { return !step.layers.empty(); });
  EXPECT_LE(with, static_cast<std::ptrdiff_t>(LoadFrames::kMost));
  EXPECT_GE(with, 16);
}

}  // namespace
}  // namespace heddle::observe

// The line that says what takes long.
#include "heddle/observe/terminal/doing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <regex>
#include <thread>

namespace heddle::observe {
namespace {

constexpr DoingPace kFast{0.01, 0.01, 0.01, 0.01};

// What is written until it has been written `count` times.
std::string written(const Terminal& terminal, const DoingPace& pace, int count,
                    const std::function<void(Doing&)>& work) {
  std::mutex mutex;
  std::string text;
  std::atomic<int> times{0};
  {
    Doing doing(
        "reading", terminal,
        [&](std::string_view piece) {
          const std::lock_guard lock(mutex);
          text += piece;
          ++times;
        },
        pace);
    work(doing);
    while (times < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return text;
}

TEST(Doing, LinesOffATerminal) {
  const std::string text = written({}, kFast, 2, [](Doing& doing) { doing.now("counting", 0.425); });
  EXPECT_TRUE(text.starts_with("counting: 42 %, 0:00\ncounting: 42 %, 0:0")) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Doing, OneLineOnATerminalThatIsTakenAway) {
  const std::string text = written({.interactive = true}, kFast, 2, [](Doing&) {});
  EXPECT_TRUE(text.starts_with("\r\x1b[Kreading: 0:00\r\x1b[Kreading: 0:0")) << text;
  EXPECT_TRUE(text.ends_with("\r\x1b[K")) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(Doing, SaysHowLongTheRestMayTake) {
  const std::string text = written({}, {0.01, 0.01, 2.1, 0.01}, 1, [](Doing& doing) {
    doing.now("reading", 0.9);  // of something else
    doing.now("counting", 0.25);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    doing.now("counting", 0.5);  // as much again, and then twice that
  });
  EXPECT_TRUE(std::regex_search(text, std::regex("counting: 50 %, \\d+:\\d\\d, about \\d+:\\d\\d left\\n")))
      << text;
}

TEST(Doing, WhatIsShortSaysNothing) {
  EXPECT_EQ(written({}, {100, 100, 100, 100}, 0, [](Doing& doing) { doing.now(0.5); }), "");
  EXPECT_EQ(written({.interactive = true}, {100, 100, 100, 100}, 0, [](Doing&) {}), "");
}

}  // namespace
}  // namespace heddle::observe

#include "heddle/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <stdexcept>
#include <thread>
#include <vector>

namespace heddle {
namespace {

TEST(OnThreads, AllAtOnceTheFirstOnTheCaller) {
  std::barrier meeting(5);  // none passes unless all run
  std::atomic<int> sum = 0;
  std::thread::id first;
  on_threads(5, [&](int thread) {
    meeting.arrive_and_wait();
    sum += thread;
    if (thread == 0) first = std::this_thread::get_id();
  });
  EXPECT_EQ(sum, 10);
  EXPECT_EQ(first, std::this_thread::get_id());
  on_threads(0, [](int) { FAIL(); });
}

TEST(OnThreads, PassesOnTheFirstErrorWhenAllHaveEnded) {
  std::atomic<bool> failed = false;
  std::atomic<int> ended = 0;
  const auto work = [&](int thread) {
    if (thread == 2) {
      failed = true;
      throw std::runtime_error("of two");
    }
    while (!failed) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++ended;
  };
  try {
    on_threads(4, work);
    FAIL() << "nothing thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "of two");
  }
  EXPECT_EQ(ended, 3);
}

TEST(ForEachIndex, RunsAllAndPassesOnTheFirstInOrder) {
  std::vector<std::atomic<int>> runs(100);
  try {
    for_each_index(100, [&](int64_t index) {
      ++runs[static_cast<size_t>(index)];
      if (index % 40 == 39) throw std::runtime_error(std::to_string(index));
    });
    FAIL() << "nothing thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "39");
  }
  for (const std::atomic<int>& each : runs) EXPECT_EQ(each, 1);
  for_each_index(0, [](int64_t) { FAIL(); });
}

}  // namespace
}  // namespace heddle

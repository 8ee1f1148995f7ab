// The counter that streams meet on: nobody misses a raise.
#include "heddle/device/host/counter.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace heddle::device {
namespace {

TEST(Counter, NobodyMissesARaise) {
  constexpr uint64_t kRounds = 2000;
  Counter ping, pong;
  std::thread other([&] {
    for (uint64_t i = 1; i <= kRounds; ++i) {
      ping.wait_for(i);
      pong.raise();
    }
  });
  for (uint64_t i = 1; i <= kRounds; ++i) {
    ping.raise();
    pong.wait_for(i);
  }
  other.join();
  EXPECT_EQ(pong.value(), kRounds);
}

TEST(Counter, WakesAllSleepers) {
  Counter counter;
  std::atomic<int> awake{0};
  std::vector<std::thread> sleepers;
  for (uint64_t target = 1; target <= 4; ++target) {
    sleepers.emplace_back([&, target] {
      counter.wait_for(target);
      ++awake;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(awake, 0);
  for (int i = 0; i < 4; ++i) counter.raise();
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_EQ(awake, 4);
}

TEST(Counter, WhatWasReachedIsNotWaitedFor) {
  Counter counter;
  counter.wait_for(0);
  counter.raise();
  counter.wait_for(1);
  EXPECT_EQ(counter.value(), 1u);
}

}  // namespace
}  // namespace heddle::device

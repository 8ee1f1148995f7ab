// The CPU's arena: open as far as it was reached, beyond the prediction only with what the machine has left.
#include "heddle/device/host/host_arena.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/device/host/host_memory.h"

namespace heddle::device {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

bool all_are(const std::byte* from, const std::byte* to, std::byte value) {
  return std::all_of(from, to, [&](std::byte b) { return b == value; });
}

TEST(HostArena, WhatIsReachedIsPoisonedEarlyOrLate) {
  HostArena arena(300 * kMiB, 100 * kMiB);
  arena.reach(kMiB);
  arena.poison();
  EXPECT_TRUE(all_are(arena.base(), arena.base() + kMiB, std::byte{0xff}));
  arena.base()[5] = std::byte{1};
  const std::byte* const base = arena.base();
  for (const int64_t bytes : {70 * kMiB, 100 * kMiB, 101 * kMiB, 107 * kMiB}) {
    arena.reach(bytes);
    EXPECT_EQ(arena.base(), base);
    EXPECT_TRUE(all_are(base + 6, base + bytes, std::byte{0xff})) << bytes;
  }
  EXPECT_EQ(arena.base()[5], std::byte{1});
  arena.reach(300 * kMiB);
  EXPECT_THROW(arena.reach(301 * kMiB), InternalError);
}

// As much as there is may be mapped, but what was not foretold and is not there is refused in words.
TEST(HostArena, BeyondThePredictionOnlyWhatIsLeft) {
  const int64_t memory = host_memory_bytes(), left = host_memory_left_bytes();
  ASSERT_GT(left, 0);
  ASSERT_LE(left, memory);
  HostArena arena(2 * memory, 8 * kMiB);
  arena.reach(8 * kMiB);
  arena.reach(9 * kMiB);
  arena.base()[9 * kMiB - 1] = std::byte{1};
  try {
    arena.reach(memory + 8 * kMiB);
    FAIL() << "all of the machine's memory and more was left";
  } catch (const SystemError& error) {
    const std::string what = error.what();
    EXPECT_TRUE(what.starts_with(
        fmt::format("out of device memory: {} MiB more are needed than the 8 MiB predicted, and this machine has ",
                    (memory + kMiB - 1) / kMiB)))
        << what;
  }
  EXPECT_EQ(arena.base()[9 * kMiB - 1], std::byte{1});
}

// Where there are not so many addresses, those that were foretold are enough.
TEST(HostArena, FewerAddressesThanAsked) {
  HostArena arena(int64_t{1} << 60, 4 * kMiB);
  EXPECT_LT(arena.capacity_bytes(), int64_t{1} << 60);
  EXPECT_GE(arena.capacity_bytes(), 4 * kMiB);
  arena.reach(4 * kMiB);
  arena.base()[4 * kMiB - 1] = std::byte{1};
  EXPECT_THROW(HostArena(int64_t{1} << 60), SystemError);
}

}  // namespace
}  // namespace heddle::device

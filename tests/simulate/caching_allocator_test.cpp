// Sequences whose outcome follows from the allocator's published rules.
#include "heddle/simulate/caching_allocator.h"

#include <gtest/gtest.h>

#include "heddle/base/random.h"
#include "tests/simulate/tiny_step.h"

namespace heddle::test {
namespace {

using simulate::CachingAllocator;
constexpr int64_t kMiB = int64_t{1} << 20;

TEST(CachingAllocator, RoundsRequestsAndSegments) {
  EXPECT_EQ(CachingAllocator::rounded(1), 512);
  EXPECT_EQ(CachingAllocator::rounded(512), 512);
  EXPECT_EQ(CachingAllocator::rounded(513), 1024);
  EXPECT_EQ(CachingAllocator::segment_bytes(512), 2 * kMiB);
  EXPECT_EQ(CachingAllocator::segment_bytes(kMiB), 2 * kMiB);
  EXPECT_EQ(CachingAllocator::segment_bytes(kMiB + 512), 20 * kMiB);
  EXPECT_EQ(CachingAllocator::segment_bytes(10 * kMiB - 512), 20 * kMiB);
  EXPECT_EQ(CachingAllocator::segment_bytes(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(CachingAllocator::segment_bytes(11 * kMiB), 12 * kMiB);
  EXPECT_EQ(CachingAllocator::segment_bytes(30 * kMiB + 1), 32 * kMiB);
}

TEST(CachingAllocator, SmallOnesShareASegment) {
  CachingAllocator a;
  for (int i = 0; i < 4096; ++i) a.allocate(1, 0);
  EXPECT_EQ(a.reserved_bytes(), 2 * kMiB);
  EXPECT_EQ(a.allocated_bytes(), 2 * kMiB);
  a.allocate(1, 0);
  EXPECT_EQ(a.reserved_bytes(), 4 * kMiB);
  a.allocate(1, 1);  // another stream has segments of its own
  EXPECT_EQ(a.reserved_bytes(), 6 * kMiB);
  a.allocate(2 * kMiB, 0);  // and so have large ones
  EXPECT_EQ(a.reserved_bytes(), 26 * kMiB);
  EXPECT_EQ(a.allocate(0, 0), -1);
}

// What is left of a large block is only cut off above 1 MiB: 19 of 20 MiB take all of it.
TEST(CachingAllocator, SplitsWhereTheRestIsOfUse) {
  CachingAllocator a;
  const auto first = a.allocate(9 * kMiB, 0);
  EXPECT_EQ(a.reserved_bytes(), 20 * kMiB);
  const auto second = a.allocate(9 * kMiB + kMiB / 2, 0);  // of the 11 that are left, 1.5 go on
  EXPECT_EQ(a.reserved_bytes(), 20 * kMiB);
  EXPECT_EQ(a.allocated_bytes(), 18 * kMiB + kMiB / 2);
  const auto third = a.allocate(kMiB + 512, 0);  // leaves less than 1 MiB: all of it
  EXPECT_EQ(a.reserved_bytes(), 20 * kMiB);
  EXPECT_EQ(a.allocated_bytes(), 20 * kMiB);
  a.free(second, false);
  a.free(first, false);  // neighbours join: 18.5 MiB, in one piece
  const auto large = a.allocate(18 * kMiB, 0);
  EXPECT_EQ(a.reserved_bytes(), 20 * kMiB);
  a.free(large, false);
  a.free(third, false);
  EXPECT_EQ(a.allocated_bytes(), 0);
  EXPECT_EQ(a.reserved_bytes(), 20 * kMiB);  // kept
  a.allocate(20 * kMiB, 0);
  EXPECT_EQ(a.reserved_bytes(), 20 * kMiB);
  EXPECT_EQ(a.peak_allocated_bytes(), 20 * kMiB);
}

// The smallest that holds it, not the first: then the larger is still whole for a larger request.
TEST(CachingAllocator, TakesTheBestFit) {
  CachingAllocator a;
  const auto large = a.allocate(40 * kMiB, 0), small = a.allocate(12 * kMiB, 0);
  a.free(large, false);
  a.free(small, false);
  a.allocate(11 * kMiB, 0);
  a.allocate(40 * kMiB, 0);
  EXPECT_EQ(a.reserved_bytes(), 52 * kMiB);
}

// A growing tensor, as rows of experts do: every larger one finds no hole, so that all the smaller stay behind.
TEST(CachingAllocator, GrowingRequestsLeaveAllTheSmallerOnes) {
  CachingAllocator a;
  int64_t all = 0;
  for (int64_t mib = 10; mib <= 30; mib += 2) {
    a.free(a.allocate(mib * kMiB, 0), false);
    all += mib;
  }
  EXPECT_EQ(a.reserved_bytes(), all * kMiB);
  // On a full device what is free goes back first.
  CachingAllocator full(40 * kMiB);
  for (int64_t mib = 10; mib <= 30; mib += 2) full.free(full.allocate(mib * kMiB, 0), false);
  EXPECT_LE(full.peak_reserved_bytes(), 40 * kMiB);
  EXPECT_EQ(full.failures(), 0);
  full.allocate(30 * kMiB, 0);
  full.allocate(30 * kMiB, 0);
  EXPECT_EQ(full.failures(), 1);
}

TEST(CachingAllocator, WhatOthersHaveReadComesBackLater) {
  CachingAllocator a;
  const auto block = a.allocate(16 * kMiB, 0);
  a.free(block, true);
  EXPECT_EQ(a.allocated_bytes(), 0);
  EXPECT_NE(a.allocate(16 * kMiB, 0), block);
  for (int i = 0; i < 64; ++i) a.free(a.allocate(1, 0), false);
  EXPECT_EQ(a.allocate(16 * kMiB, 0), block);
}

TEST(CachingAllocator, DrawnSequencesHoldWhatTheyGave) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const RandomKey key(seed);
    CachingAllocator a;
    std::map<CachingAllocator::Id, int64_t> held;  // where, how long
    int64_t bytes = 0;
    for (uint64_t i = 0; i < 3000; ++i) {
      if (held.empty() || key.bits(3 * i) % 5 < 3) {
        const auto wanted = static_cast<int64_t>(1 + (key.bits(3 * i + 1) >> (40 + key.bits(3 * i + 2) % 16)));
        const auto id = a.allocate(wanted, static_cast<int>(i % 3));
        const auto after = held.lower_bound(id);
        ASSERT_TRUE(after == held.end() || id + wanted <= after->first);
        ASSERT_TRUE(after == held.begin() || std::prev(after)->first + std::prev(after)->second <= id);
        held[id] = CachingAllocator::rounded(wanted);
        bytes += held[id];
      } else {
        auto at = held.begin();
        std::advance(at, key.bits(3 * i + 1) % held.size());
        bytes -= at->second;
        a.free(at->first, key.bits(3 * i + 2) % 4 == 0);
        held.erase(at);
      }
      ASSERT_GE(a.allocated_bytes(), bytes);  // an unsplit rest is part of its block
      ASSERT_LE(a.allocated_bytes(), a.reserved_bytes());
    }
    for (const auto& [id, length] : held) a.free(id, false);
    EXPECT_EQ(a.allocated_bytes(), 0);
  }
}

// Of a real step: it holds at least what lives at the peak, and the second step needs no more than the first.
TEST(CachingAllocator, HoldsAStep) {
  const plan::Plan plan = tiny_plan(1, 1, true, 3);
  const plan::Lowered lowered = plan::lower(tiny_model(), plan);
  simulate::RecordOptions options;
  options.caching_allocator = true;
  const simulate::Recording one = simulate::record(lowered.program, 0, options);
  EXPECT_GT(one.caching_reserved_bytes, one.peak_live_bytes);
  EXPECT_EQ(one.caching_reserved_bytes % (2 * kMiB), 0);
  options.steps = 3;
  EXPECT_EQ(simulate::record(lowered.program, 0, options).caching_reserved_bytes, one.caching_reserved_bytes);
  options.caching_allocator = false;
  EXPECT_EQ(simulate::record(lowered.program, 0, options).caching_reserved_bytes, 0);
}

}  // namespace
}  // namespace heddle::test

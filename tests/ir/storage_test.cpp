// Storage: places never overlap, what is reused is waited for, and the high water only grows.
#include "heddle/ir/storage.h"

#include <gtest/gtest.h>

#include <map>

#include "heddle/base/random.h"

namespace heddle::ir {
namespace {

struct Held {
  int64_t bytes;
  Marks used;
};

// Random places and releases by two streams in an unlimited or tight arena, checked against a map of who used what.
void exercise(uint64_t seed, int64_t capacity, bool two_ended = false) {
  Storage storage(capacity, two_ended);
  std::map<int64_t, Held> held;
  std::map<int64_t, Marks> last_use;  // by 128-byte line
  const RandomKey key(seed);
  int64_t high = 0;
  for (uint64_t i = 0; i < 4000; ++i) {
    if (key.bits(4 * i) % 2 == 0 || held.empty()) {
      const auto bytes = static_cast<int64_t>(1 + key.bits(4 * i + 1) % 3000);
      const int stream = static_cast<int>(key.bits(4 * i + 2) % 2);
      const auto place = storage.place(bytes, stream, {}, key.bits(4 * i + 2) % 3 == 0);
      if (!place) {
        ASSERT_GT(capacity, 0);
        continue;
      }
      const int64_t rounded = storage_bytes(bytes);
      const auto after = held.lower_bound(place->offset);
      if (after != held.end()) {
        ASSERT_LE(place->offset + rounded, after->first);
      }
      if (after != held.begin()) {
        ASSERT_LE(std::prev(after)->first + std::prev(after)->second.bytes, place->offset);
      }
      for (int64_t line = place->offset; line < place->offset + rounded; line += kStorageAlignment) {
        for (int s = 0; s < kMostStreams; ++s) {
          const auto k = static_cast<size_t>(s);
          ASSERT_GE(place->wait_for[k], last_use[line][k]) << "line " << line << " of stream " << s;
        }
      }
      Marks used{};
      used[static_cast<size_t>(stream)] = i + 1;
      if (key.bits(4 * i + 3) % 3 == 0) used[static_cast<size_t>(1 - stream)] = i + 1;
      held[place->offset] = {rounded, used};
      ASSERT_GE(storage.reserved_bytes(), high);
      high = storage.reserved_bytes();
      if (capacity > 0) {
        ASSERT_LE(high, capacity);
      }
      ASSERT_LE(place->offset + rounded, high);
    } else {
      auto at = held.begin();
      std::advance(at, static_cast<long>(key.bits(4 * i + 1) % held.size()));
      for (int64_t line = at->first; line < at->first + at->second.bytes; line += kStorageAlignment) {
        last_use[line] = at->second.used;
      }
      storage.release(at->first, at->second.bytes, at->second.used);
      held.erase(at);
    }
    int64_t live = 0;
    for (const auto& [offset, h] : held) live += h.bytes;
    ASSERT_EQ(storage.live_bytes(), live);
  }
}

TEST(Storage, PlacesNeverOverlapAndWaitForWhatTheyReuse) {
  for (uint64_t seed = 0; seed < 20; ++seed) exercise(seed, 0);
}
TEST(Storage, KeepsToItsCapacity) {
  for (uint64_t seed = 0; seed < 20; ++seed) exercise(seed, 40000);
}
TEST(Storage, TwoEndedKeepsToItsCapacity) {
  for (uint64_t seed = 0; seed < 20; ++seed) exercise(seed, 40000, true);
}

// Small things that stay among large ones that come and go: from one end they part the room, from two they don't.
TEST(Storage, WhatStaysDoesNotPartTheRoomOfWhatIsBrief) {
  const auto fits = [](bool two_ended) {
    Storage storage(64 * kStorageAlignment, two_ended);
    const Marks used{};
    for (int i = 0; i < 16; ++i) {
      const auto large = storage.place(3 * kStorageAlignment, 0, {}, true);
      storage.place(kStorageAlignment, 0);
      storage.release(large->offset, 3 * kStorageAlignment, used);
    }
    return storage.place(40 * kStorageAlignment, 0, {}, true).has_value();
  };
  EXPECT_TRUE(fits(true));
}

}  // namespace
}  // namespace heddle::ir

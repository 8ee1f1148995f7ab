// Storage: places never overlap, what is reused is waited for, and the high water only grows.
#include "heddle/ir/walk/storage.h"

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
void exercise(uint64_t seed, int64_t capacity, bool two_ended = false, int64_t limit = 0) {
  Storage storage(capacity, two_ended, limit);
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
        ASSERT_LE(high, std::max(capacity, limit));
        ASSERT_EQ(storage.grown_bytes(), std::max<int64_t>(0, high - capacity));
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

TEST(Storage, GrowsBeyondItsCapacityAsFarAsTheLimit) {
  for (const bool two_ended : {false, true}) {
    for (uint64_t seed = 0; seed < 20; ++seed)
      exercise(seed, 20000 / kStorageAlignment * kStorageAlignment, two_ended, 44000);
  }
}

// While the capacity is enough, a limit changes nothing: not one place.
TEST(Storage, ALimitChangesNothingWithinTheCapacity) {
  for (const bool two_ended : {false, true}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Storage bare(400 * kStorageAlignment, two_ended),
          roomy(400 * kStorageAlignment, two_ended, 4000 * kStorageAlignment);
      const RandomKey key(seed);
      std::map<int64_t, int64_t> held;
      for (uint64_t i = 0; i < 500; ++i) {
        if (key.bits(4 * i) % 2 == 0 || held.empty()) {
          const auto bytes = static_cast<int64_t>(1 + key.bits(4 * i + 1) % 1500);
          const int stream = static_cast<int>(key.bits(4 * i + 2) % 3);
          const bool brief = key.bits(4 * i + 3) % 2 == 0;
          const auto a = bare.place(bytes, stream, {}, brief);
          if (!a) break;
          const auto b = roomy.place(bytes, stream, {}, brief);
          ASSERT_TRUE(b);
          ASSERT_EQ(a->offset, b->offset);
          ASSERT_EQ(a->wait_for, b->wait_for);
          held[a->offset] = bytes;
        } else {
          auto at = held.begin();
          std::advance(at, static_cast<long>(key.bits(4 * i + 1) % held.size()));
          Marks used{};
          used[key.bits(4 * i + 2) % 3] = i + 1;
          bare.release(at->first, at->second, used);
          roomy.release(at->first, at->second, used);
          held.erase(at);
        }
        ASSERT_EQ(roomy.grown_bytes(), 0);
        ASSERT_EQ(bare.reserved_bytes(), roomy.reserved_bytes());
      }
    }
  }
}

// What stays where it should not parts the room: there is enough of it, but in no one piece.
TEST(Storage, GrowsWhereTheRoomIsInPieces) {
  for (const bool two_ended : {false, true}) {
    Storage storage(8 * kStorageAlignment, two_ended, 100 * kStorageAlignment);
    std::vector<int64_t> places;
    for (int i = 0; i < 8; ++i) places.push_back(storage.place(kStorageAlignment, 0)->offset);
    Marks other{};
    other[1] = 5;
    for (size_t i = 1; i < places.size(); i += 2) storage.release(places[i], kStorageAlignment, other);
    const auto place = storage.place(3 * kStorageAlignment, 0);  // of four that are free
    ASSERT_TRUE(place);
    EXPECT_EQ(place->offset, 7 * kStorageAlignment);  // the free one at the top is part of it, and waited for
    EXPECT_EQ(place->wait_for[1], 5u);
    EXPECT_EQ(storage.grown_bytes(), 2 * kStorageAlignment);
    EXPECT_EQ(storage.reserved_bytes(), 10 * kStorageAlignment);
    storage.release(place->offset, 3 * kStorageAlignment, {});
    EXPECT_EQ(storage.place(3 * kStorageAlignment, 0)->offset, place->offset);  // and stays
    EXPECT_EQ(storage.grown_bytes(), 2 * kStorageAlignment);
    EXPECT_FALSE(storage.place(91 * kStorageAlignment, 0));
    EXPECT_EQ(storage.largest_free_bytes(), 90 * kStorageAlignment);
    EXPECT_TRUE(storage.place(90 * kStorageAlignment, 0));
  }
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

// Runs are found as by looking at each fragment in turn, whatever blocks they lie in.
TEST(Fragments, RunsAreFoundAcrossBlocks) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    uint64_t drawn = 0;
    const auto below = [&](int64_t n) {
      return static_cast<int64_t>(RandomKey(seed).bits(drawn++) % static_cast<uint64_t>(n));
    };
    Fragments fragments;
    std::map<int64_t, Fragment> known;
    for (int step = 0; step < 4000; ++step) {
      const int64_t slot = below(700);
      const auto has = known.find(slot * 10);
      if (has == known.end() && below(10) < (step < 2000 ? 8 : 4)) {
        const int64_t bytes = below(3) == 0 ? 6 : 10;  // 10 touches the next
        const Fragment fragment{slot * 10, bytes, static_cast<uint64_t>(step), static_cast<uint32_t>(below(3)), 0};
        known[fragment.offset] = fragment;
        EXPECT_EQ(fragments[fragments.insert(fragments.from(fragment.offset), fragment)].offset, fragment.offset);
      } else if (has != known.end() && below(10) < 3) {
        known.erase(has);
        fragments.erase(fragments.from(slot * 10));
      }
      if (step % 7 != 0) continue;
      ASSERT_EQ(fragments.size(), known.size());
      const auto usable = [&](const Fragment& f) { return f.streams != 0; };
      const int64_t bytes = 1 + below(80);
      int64_t lowest = -1, highest = -1, lowest_end = -1, begin = 0, end = -1;
      for (const auto& [offset, f] : known) {
        if (!usable(f)) continue;
        if (offset != end) begin = offset;
        end = f.end();
        if (end - begin < bytes) continue;
        if (lowest < 0) lowest = begin;
        lowest_end = end;
      }
      if (lowest_end >= 0) {  // the last run that is long enough: of its end, as much as is needed
        for (auto f = known.rbegin(); f != known.rend(); ++f)
          if (f->second.end() <= lowest_end && f->first <= lowest_end - bytes) {
            highest = f->first;
            break;
          }
      }
      const Fragments::At low = fragments.lowest_run(bytes, usable);
      EXPECT_EQ(low == fragments.end() ? -1 : fragments[low].offset, lowest);
      int64_t run_end = -1;
      const Fragments::At high = fragments.highest_run(bytes, usable, run_end);
      EXPECT_EQ(high == fragments.end() ? -1 : fragments[high].offset, highest);
      EXPECT_EQ(run_end, lowest_end);
    }
    int64_t last = -1;
    for (auto at = fragments.begin(); at != fragments.end(); at = fragments.next(at)) {
      EXPECT_GT(fragments[at].offset, last);
      last = fragments[at].offset;
    }
  }
}

}  // namespace
}  // namespace heddle::ir

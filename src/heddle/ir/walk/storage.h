// The offsets of values in a device arena, decided in program order, without memory of its own.
//
// Freed storage may still be in use by ops enqueued earlier, so each free interval remembers, per stream, the last
// op that touched it. Storage last used on the asking stream alone is reusable at once. Storage of another stream
// is reusable only after some more ops have been enqueued, so that a wait on it is seldom felt. Otherwise the arena
// grows; where it can't, the longest released is taken. Within a class the lowest address wins. Neighbouring
// intervals used by different streams stay apart, lest one that nobody would wait for becomes one that somebody
// must; a place may span them. A small one of several streams that has settled stays apart from one that has not,
// and the other way round. The same object decides for the executor and for the simulator, so that the predicted
// high water is the real one.
//
// The capacity is a prediction: within it things are packed as tightly as waits allow. Where even that leaves no
// place, because rows came in other numbers than predicted, the arena grows beyond it, as far as the limit.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "heddle/ir/walk/fragments.h"
#include "heddle/ir/walk/streams.h"

namespace heddle::ir {

constexpr int64_t kStorageAlignment = 128;  // two cache lines: the adjacent-line prefetcher works in pairs
constexpr int64_t storage_bytes(int64_t bytes) {
  return (bytes + kStorageAlignment - 1) / kStorageAlignment * kStorageAlignment;
}

/// The size of a place for so many bytes; above 0 even for none.
constexpr int64_t place_bytes(int64_t bytes) { return bytes > 0 ? storage_bytes(bytes) : kStorageAlignment; }

class Storage {
 public:
  /// `capacity` in bytes; 0 means unlimited. Two-ended (with a capacity): brief values lie at the top, the rest at
  /// the bottom. Small values that stay then don't split the room that large ones come and go in. All of it is
  /// reserved at once. `limit`: the size to which it may grow where the capacity is not enough; 0: not at all.
  explicit Storage(int64_t capacity, bool two_ended = false, int64_t limit = 0);

  struct Place {
    int64_t offset = 0;
    Marks wait_for{};  // ops that must have ended before the place is written
  };
  /// A place for `bytes` (rounded up to the alignment), or nothing when the limit does not allow it. `waited`:
  /// ops of other streams that `stream` has waited for already; what they used is as good as its own.
  /// `brief`: it is given back before the block that makes it ends.
  std::optional<Place> place(int64_t bytes, int stream, const Marks& waited = {}, bool brief = false);
  /// Gives a place back; `used` are the last ops that read or wrote it.
  void release(int64_t offset, int64_t bytes, const Marks& used);

  /// Receives every place that is taken (with the bytes that were asked for) and given back.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    virtual void placed(int64_t offset, int64_t bytes, int stream) = 0;
    virtual void released(int64_t offset, const Marks& used) = 0;
  };
  Watcher* watcher = nullptr;

  /// Notes that so many ops of each stream have ended. What is free and only they used needs not be waited for, and
  /// at the top has never been used. Every step then lays its values out as the first did.
  void settle(const Marks& ended);

  int64_t limit() const { return limit_; }
  /// Bytes by which the capacity was passed: 0 as long as the prediction holds.
  int64_t grown_bytes() const { return capacity_ - predicted_; }
  int64_t live_bytes() const { return live_; }
  int64_t peak_live_bytes() const { return peak_live_; }
  int64_t reserved_bytes() const { return high_water_; }  // never falls
  int64_t largest_free_bytes() const;                     // within the limit, if there is one
  void reset_peak() { peak_live_ = live_; }

  static constexpr uint64_t kSettled = 64;  // placements after which another stream's storage counts as settled
  /// Its clock counts placements.
  uint64_t clock() const { return clock_; }
  void advance(uint64_t placements) { clock_ += placements; }
  size_t fragments() const { return free_.size(); }
  /// Visits what decides where further values go: numbers, marks of the last users and times by the clock.
  template <class Exact, class OnMarks, class OnClock>
  void each_of_state(const Exact& exact, const OnMarks& marks, const OnClock& clock) {
    for (const int64_t bytes : {capacity_, extent_, high_water_, live_, peak_live_}) exact(bytes);
    for (At at = free_.begin(); at != free_.end(); at = free_.next(at)) {
      Fragment& free = free_.change(at);
      exact(free.offset);
      exact(free.bytes);
      exact(free.streams);
      marks(used_[free.used]);
      clock(free.released_at);
    }
  }

 private:
  using At = Fragments::At;
  /// Marks that fragments name by number, so that the fragments themselves are small. Numbers that are not in use
  /// are a chain: each place holds the next, 0 ends it and holds the first.
  class MarksPool {
   public:
    MarksPool() : marks_(1) {}
    uint32_t take(const Marks& marks);
    void give_back(uint32_t number);
    Marks& operator[](uint32_t number) { return marks_[number]; }
    const Marks& operator[](uint32_t number) const { return marks_[number]; }

   private:
    std::vector<Marks> marks_;
  };
  static_assert(kMostStreams <= 32);
  // The start of a run of neighbours, or the end. `first_run`: the lowest of those free to the stream that holds
  // `bytes`, else of those that are settled. `top_run`: the usable ones that touch the high water, whatever they
  // hold.
  At first_run(int64_t bytes, int stream, const Marks& waited) const;
  template <class Usable>
  At top_run(const Usable& usable) const;
  /// The run whose newest was released first, and when that was.
  std::pair<At, uint64_t> oldest_run(int64_t bytes) const;
  bool free_to(const Fragment& free, int stream, const Marks& waited) const;
  std::optional<Place> find_place(int64_t bytes, int stream, const Marks& waited);
  std::optional<Place> find_place_two_ended(int64_t bytes, int stream, const Marks& waited, bool brief);
  std::optional<Place> grow(int64_t bytes);
  Place take(At at, int64_t offset, int64_t bytes);  // `at` holds the offset, or is the end
  bool join(At at);                                  // with its next, if they are of one kind

  Fragments free_;
  MarksPool used_;
  int64_t capacity_;  // with what it has grown by
  int64_t predicted_, limit_;
  bool two_ended_;
  int64_t extent_ = 0;      // what lies above has not been used since settle()
  int64_t high_water_ = 0;  // of the extent
  int64_t live_ = 0;
  int64_t peak_live_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace heddle::ir

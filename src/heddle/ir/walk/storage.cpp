#include "heddle/ir/walk/storage.h"

#include <algorithm>
#include <bit>

namespace heddle::ir {

namespace {
uint32_t streams_of(const Marks& used) {
  uint32_t streams = 0;
  for (int i = 0; i < kMostStreams; ++i) streams |= static_cast<uint32_t>(used[static_cast<size_t>(i)] > 0) << i;
  return streams;
}
}  // namespace

Storage::Storage(int64_t capacity, bool two_ended, int64_t limit)
    : capacity_(capacity),
      foretold_(capacity),
      limit_(capacity == 0 ? 0 : std::max(capacity, limit)),
      two_ended_(two_ended && capacity > 0) {
  if (!two_ended_) return;
  extent_ = high_water_ = capacity / kStorageAlignment * kStorageAlignment;
  free_[0].bytes = extent_;
}

// Asked of every fragment for every place: few streams have used one, so only those are looked at.
bool Storage::free_to(const Free& free, int stream, const Marks& waited) {
  for (uint32_t left = free.streams & ~(uint32_t{1} << stream); left != 0; left &= left - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(left));
    if (free.used[i] > waited[i]) return false;
  }
  return true;
}

Storage::Fragments::iterator Storage::first_run(int64_t bytes, int stream, const Marks& waited) {
  struct Stretch {
    Fragments::iterator start;
    int64_t bytes = 0, end = -1;
  };
  const auto grows = [&](Stretch& run, Fragments::iterator at, bool usable) {  // until it holds them
    if (!usable) {
      run.end = -1;
      return false;
    }
    if (at->first != run.end) {
      run.start = at;
      run.bytes = 0;
    }
    run.bytes += at->second.bytes;
    run.end = at->first + at->second.bytes;
    return run.bytes >= bytes;
  };
  Stretch own, settled;
  auto found = free_.end();
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    const bool is_own = free_to(at->second, stream, waited);
    if (grows(own, at, is_own)) return own.start;
    if (found == free_.end() && grows(settled, at, is_own || clock_ - at->second.released_at > kSettled))
      found = settled.start;
  }
  return found;
}

std::pair<Storage::Fragments::iterator, uint64_t> Storage::oldest_run(int64_t bytes) {
  auto oldest = free_.end();
  uint64_t released_at = 0;
  for (auto start = free_.begin(); start != free_.end(); ++start) {
    uint64_t newest = 0;
    int64_t end = start->first;
    for (auto at = start; at != free_.end() && at->first == end && end - start->first < bytes; ++at) {
      newest = std::max(newest, at->second.released_at);
      end += at->second.bytes;
    }
    if (end - start->first < bytes || (oldest != free_.end() && newest >= released_at)) continue;
    oldest = start;
    released_at = newest;
  }
  return {oldest, released_at};
}

template <class Usable>
Storage::Fragments::iterator Storage::top_run(const Usable& usable) {
  auto start = free_.end();
  int64_t begin = extent_;
  while (start != free_.begin()) {
    const auto before = std::prev(start);
    if (before->first + before->second.bytes != begin || !usable(before->second)) break;
    begin = before->first;
    start = before;
  }
  return start;
}

Storage::Place Storage::take(Fragments::iterator at, int64_t offset, int64_t bytes) {
  Place place;
  place.offset = offset;
  const int64_t end = offset + bytes;
  if (at != free_.end() && at->first < offset) {
    Free above = at->second;
    at->second.bytes = offset - at->first;
    above.bytes -= at->second.bytes;
    at = free_.emplace_hint(std::next(at), offset, above);
  }
  while (at != free_.end() && at->first < end) {
    merge(place.wait_for, at->second.used);
    const int64_t beyond = at->first + at->second.bytes - end;
    if (beyond > 0) {
      Free rest = at->second;
      rest.bytes = beyond;
      free_.emplace(end, rest);
    }
    at = free_.erase(at);
  }
  extent_ = std::max(extent_, end);
  high_water_ = std::max(high_water_, extent_);
  live_ += bytes;
  peak_live_ = std::max(peak_live_, live_);
  return place;
}

std::optional<Storage::Place> Storage::place(int64_t bytes, int stream, const Marks& waited, bool brief) {
  std::optional<Place> place =
      two_ended_ ? find_place_two_ended(bytes, stream, waited, brief) : find_place(bytes, stream, waited);
  if (!place) place = grow(bytes);
  if (place && watcher != nullptr) watcher->placed(place->offset, bytes, stream);
  return place;
}

std::optional<Storage::Place> Storage::find_place(int64_t bytes, int stream, const Marks& waited) {
  bytes = std::max(storage_bytes(bytes), kStorageAlignment);
  ++clock_;
  const auto settled = [&](const Free& free) {
    return free_to(free, stream, waited) || clock_ - free.released_at > kSettled;
  };
  auto at = first_run(bytes, stream, waited);
  if (at != free_.end()) return take(at, at->first, bytes);

  // Grow, from the free interval at the very top if it is usable; rather wait for others' storage than not fit.
  const auto fits = [&](int64_t start) { return capacity_ == 0 || start + bytes <= capacity_; };
  const auto start_of = [&](Fragments::iterator top) { return top == free_.end() ? extent_ : top->first; };
  at = top_run(settled);
  if (fits(start_of(at))) return take(at, start_of(at), bytes);
  at = oldest_run(bytes).first;
  if (at != free_.end()) return take(at, at->first, bytes);
  return std::nullopt;
}

std::optional<Storage::Place> Storage::find_place_two_ended(int64_t bytes, int stream, const Marks& waited,
                                                            bool brief) {
  bytes = std::max(storage_bytes(bytes), kStorageAlignment);
  ++clock_;
  // At the nearer end of a run of neighbours that are usable: the highest for what is brief, else the lowest.
  const auto place_among = [&](const auto& usable) -> std::optional<Place> {
    int64_t begin = 0, end = -1;
    if (!brief) {
      for (auto at = free_.begin(); at != free_.end(); ++at) {
        if (!usable(at->second)) continue;
        if (at->first != end) begin = at->first;
        end = at->first + at->second.bytes;
        if (end - begin >= bytes) return take(free_.find(begin), begin, bytes);
      }
      return std::nullopt;
    }
    begin = -1;
    for (auto at = free_.rbegin(); at != free_.rend(); ++at) {
      if (!usable(at->second)) continue;
      const int64_t top = at->first + at->second.bytes;
      if (top != begin) end = top;
      begin = at->first;
      if (end - begin >= bytes) return take(std::prev(at.base()), end - bytes, bytes);
    }
    return std::nullopt;
  };
  const auto own = [&](const Free& free) { return free_to(free, stream, waited); };
  if (auto place = place_among(own)) return place;
  if (auto place =
          place_among([&](const Free& free) { return own(free) || clock_ - free.released_at > kSettled; })) {
    return place;
  }
  const auto [oldest, released_at] = oldest_run(bytes);
  if (oldest == free_.end()) return std::nullopt;
  return place_among([&, last = released_at](const Free& free) { return free.released_at <= last; });
}

// From the free intervals at the very top on, whoever used them: first up to the capacity, then beyond it by as
// little as can be.
std::optional<Storage::Place> Storage::grow(int64_t bytes) {
  bytes = std::max(storage_bytes(bytes), kStorageAlignment);
  const auto at = top_run([](const Free&) { return true; });
  const int64_t start = at == free_.end() ? extent_ : at->first;
  if (start + bytes > limit_) return std::nullopt;
  capacity_ = std::max(capacity_, start + bytes);
  return take(at, start, bytes);
}

void Storage::release(int64_t offset, int64_t bytes, const Marks& used) {
  if (watcher != nullptr) watcher->released(offset, used);
  bytes = std::max(storage_bytes(bytes), kStorageAlignment);
  live_ -= bytes;
  const auto next = free_.lower_bound(offset);
  HEDDLE_CHECK(next == free_.end() || next->first >= offset + bytes, "storage at {} is released twice", offset);
  HEDDLE_CHECK(next == free_.begin() || std::prev(next)->first + std::prev(next)->second.bytes <= offset,
               "storage at {} is released twice", offset);
  auto at = free_.emplace_hint(next, offset, Free{bytes, used, clock_, streams_of(used)});
  join(at);
  if (at != free_.begin()) join(std::prev(at));
}

void Storage::join(Fragments::iterator at) {
  const auto next = std::next(at);
  if (next == free_.end() || at->first + at->second.bytes != next->first) return;
  if (at->second.streams != next->second.streams) return;
  at->second.bytes += next->second.bytes;
  at->second.released_at = std::max(at->second.released_at, next->second.released_at);
  merge(at->second.used, next->second.used);
  free_.erase(next);
}

void Storage::settle() {
  for (auto& [offset, free] : free_) {
    free.used = {};
    free.streams = 0;
  }
  for (auto at = free_.begin(); at != free_.end();) {
    const size_t before = free_.size();
    join(at);
    if (free_.size() == before) ++at;
  }
  if (!two_ended_ && !free_.empty() &&
      std::prev(free_.end())->first + std::prev(free_.end())->second.bytes == extent_) {
    extent_ = std::prev(free_.end())->first;
    free_.erase(std::prev(free_.end()));
  }
}

int64_t Storage::largest_free_bytes() const {
  int64_t largest = 0, run = 0, end = -1;
  for (const auto& [offset, free] : free_) {
    run = offset == end ? run + free.bytes : free.bytes;
    end = offset + free.bytes;
    largest = std::max(largest, run);
  }
  if (limit_ > 0) largest = std::max(largest, limit_ - extent_ + (end == extent_ ? run : 0));
  return largest;
}

}  // namespace heddle::ir

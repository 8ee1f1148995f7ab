#include "heddle/ir/walk/storage.h"

#include <algorithm>
#include <bit>

namespace heddle::ir {

namespace {
constexpr int64_t kSmallBytes = 256 << 10;  // more than a microbatch's ids and labels, less than its rows

uint32_t streams_of(const Marks& used) {
  uint32_t streams = 0;
  for (int i = 0; i < kMostStreams; ++i) streams |= static_cast<uint32_t>(used[i] > 0) << i;
  return streams;
}
}  // namespace

uint32_t Storage::MarksPool::take(const Marks& marks) {
  auto number = static_cast<uint32_t>(marks_[0][0]);
  if (number == 0) {
    number = static_cast<uint32_t>(marks_.size());
    marks_.push_back(Marks(marks));  // a copy first: it may be one of these
    return number;
  }
  marks_[0][0] = marks_[number][0];
  marks_[number] = marks;
  return number;
}

void Storage::MarksPool::give_back(uint32_t number) {
  marks_[number][0] = marks_[0][0];
  marks_[0][0] = number;
}

Storage::Storage(int64_t capacity, bool two_ended, int64_t limit)
    : capacity_(capacity),
      predicted_(capacity),
      limit_(capacity == 0 ? 0 : std::max(capacity, limit)),
      two_ended_(two_ended && capacity > 0) {
  if (!two_ended_) return;
  extent_ = high_water_ = capacity / kStorageAlignment * kStorageAlignment;
  free_.insert(free_.end(), {.offset = 0, .bytes = extent_, .used = used_.take({})});
}

// Asked of every fragment for every place: few streams have used one, so only those are looked at.
bool Storage::free_to(const Fragment& free, int stream, const Marks& waited) const {
  for (uint32_t left = free.streams & ~(uint32_t{1} << stream); left != 0; left &= left - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(left));
    if (used_[free.used][i] > waited[i]) return false;
  }
  return true;
}

Storage::At Storage::first_run(int64_t bytes, int stream, const Marks& waited) const {
  const At own = free_.lowest_run(bytes, [&](const Fragment& free) { return free_to(free, stream, waited); });
  if (own != free_.end()) return own;
  return free_.lowest_run(bytes, [&](const Fragment& free) {
    return clock_ - free.released_at > kSettled || free_to(free, stream, waited);
  });
}

std::pair<Storage::At, uint64_t> Storage::oldest_run(int64_t bytes) const {
  At oldest = free_.end();
  uint64_t released_at = 0;
  for (At start = free_.begin(); start != free_.end(); start = free_.next(start)) {
    uint64_t newest = 0;
    const int64_t begin = free_[start].offset;
    int64_t end = begin;
    for (At at = start; at != free_.end() && free_[at].offset == end && end - begin < bytes; at = free_.next(at)) {
      newest = std::max(newest, free_[at].released_at);
      end += free_[at].bytes;
    }
    if (end - begin < bytes || (oldest != free_.end() && newest >= released_at)) continue;
    oldest = start;
    released_at = newest;
  }
  return {oldest, released_at};
}

template <class Usable>
Storage::At Storage::top_run(const Usable& usable) const {
  At start = free_.end();
  int64_t begin = extent_;
  while (start != free_.begin()) {
    const At before = free_.previous(start);
    if (free_[before].end() != begin || !usable(free_[before])) break;
    begin = free_[before].offset;
    start = before;
  }
  return start;
}

Storage::Place Storage::take(At at, int64_t offset, int64_t bytes) {
  Place place;
  place.offset = offset;
  const int64_t end = offset + bytes;
  if (at != free_.end() && free_[at].offset < offset) {
    Fragment& below = free_.change(at);
    Fragment above = below;
    below.bytes = offset - below.offset;
    above.offset = offset;
    above.bytes -= below.bytes;
    above.used = used_.take(used_[above.used]);
    at = free_.insert(free_.next(at), above);
  }
  while (at != free_.end() && free_[at].offset < end) {
    merge(place.wait_for, used_[free_[at].used]);
    if (const int64_t beyond = free_[at].end() - end; beyond > 0) {
      Fragment& free = free_.change(at);
      free.offset = end;
      free.bytes = beyond;
      break;
    }
    used_.give_back(free_[at].used);
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
  bytes = place_bytes(bytes);
  ++clock_;
  const auto settled = [&](const Fragment& free) {
    return free_to(free, stream, waited) || clock_ - free.released_at > kSettled;
  };
  At at = first_run(bytes, stream, waited);
  if (at != free_.end()) return take(at, free_[at].offset, bytes);

  // Grow, from the free interval at the very top if it is usable; rather wait for others' storage than not fit.
  const auto fits = [&](int64_t start) { return capacity_ == 0 || start + bytes <= capacity_; };
  const auto start_of = [&](At top) { return top == free_.end() ? extent_ : free_[top].offset; };
  at = top_run(settled);
  if (fits(start_of(at))) return take(at, start_of(at), bytes);
  at = oldest_run(bytes).first;
  if (at != free_.end()) return take(at, free_[at].offset, bytes);
  return std::nullopt;
}

std::optional<Storage::Place> Storage::find_place_two_ended(int64_t bytes, int stream, const Marks& waited,
                                                            bool brief) {
  bytes = place_bytes(bytes);
  ++clock_;
  // At the nearer end of a run of neighbours that are usable: the highest for what is brief, else the lowest.
  const auto place_among = [&](const auto& usable) -> std::optional<Place> {
    int64_t run_end = 0;
    const At at = brief ? free_.highest_run(bytes, usable, run_end) : free_.lowest_run(bytes, usable);
    if (at == free_.end()) return std::nullopt;
    return take(at, brief ? run_end - bytes : free_[at].offset, bytes);
  };
  const auto own = [&](const Fragment& free) { return free_to(free, stream, waited); };
  if (auto place = place_among(own)) return place;
  if (auto place =
          place_among([&](const Fragment& free) { return own(free) || clock_ - free.released_at > kSettled; })) {
    return place;
  }
  const auto [oldest, released_at] = oldest_run(bytes);
  if (oldest == free_.end()) return std::nullopt;
  return place_among([&, last = released_at](const Fragment& free) { return free.released_at <= last; });
}

// A place from the free intervals at the very top on, whoever used them: first up to the capacity, then beyond it
// by as little as can be.
std::optional<Storage::Place> Storage::grow(int64_t bytes) {
  bytes = place_bytes(bytes);
  const At at = top_run([](const Fragment&) { return true; });
  const int64_t start = at == free_.end() ? extent_ : free_[at].offset;
  if (start + bytes > limit_) return std::nullopt;
  capacity_ = std::max(capacity_, start + bytes);
  return take(at, start, bytes);
}

void Storage::release(int64_t offset, int64_t bytes, const Marks& used) {
  if (watcher != nullptr) watcher->released(offset, used);
  bytes = place_bytes(bytes);
  live_ -= bytes;
  At at = free_.from(offset);
  HEDDLE_CHECK(at == free_.end() || free_[at].offset >= offset + bytes, "storage at {} is released twice", offset);
  HEDDLE_CHECK(at == free_.begin() || free_[free_.previous(at)].end() <= offset, "storage at {} is released twice",
               offset);
  at = free_.insert(at, {offset, bytes, clock_, streams_of(used), used_.take(used)});
  join(at);
  if (at != free_.begin()) join(free_.previous(at));
}

bool Storage::join(At at) {
  const At after = free_.next(at);
  if (after == free_.end()) return false;
  const Fragment &low = free_[at], &high = free_[after];
  if (low.end() != high.offset || low.streams != high.streams) return false;
  // Else what a step's loads leave at the top, one beside the other, would never settle, and the top would rise
  // with every microbatch.
  const auto settled = [&](const Fragment& one) { return clock_ - one.released_at > kSettled; };
  const bool small = std::min(low.bytes, high.bytes) <= kSmallBytes;
  if (small && std::popcount(low.streams) > 1 && settled(low) != settled(high)) return false;
  Fragment& free = free_.change(at);
  free.bytes += high.bytes;
  free.released_at = std::max(free.released_at, high.released_at);
  merge(used_[free.used], used_[high.used]);
  used_.give_back(high.used);
  free_.erase(after);
  return true;
}

void Storage::settle(const Marks& ended) {
  for (At at = free_.begin(); at != free_.end(); at = free_.next(at)) {
    Fragment& free = free_.change(at);
    Marks& used = used_[free.used];
    for (size_t i = 0; i < ended.size(); ++i) used[i] = used[i] > ended[i] ? used[i] : 0;
    free.streams = streams_of(used);
  }
  for (At at = free_.begin(); at != free_.end();) {
    if (!join(at)) at = free_.next(at);
  }
  if (two_ended_ || free_.size() == 0) return;
  const At top = free_.previous(free_.end());
  if (free_[top].streams != 0 || free_[top].end() != extent_) return;
  extent_ = free_[top].offset;
  used_.give_back(free_[top].used);
  free_.erase(top);
}

int64_t Storage::largest_free_bytes() const {
  int64_t largest = 0, run = 0, end = -1;
  for (At at = free_.begin(); at != free_.end(); at = free_.next(at)) {
    const Fragment& free = free_[at];
    run = free.offset == end ? run + free.bytes : free.bytes;
    end = free.end();
    largest = std::max(largest, run);
  }
  if (limit_ > 0) largest = std::max(largest, limit_ - extent_ + (end == extent_ ? run : 0));
  return largest;
}

}  // namespace heddle::ir

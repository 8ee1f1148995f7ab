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
  free_.push_back({.offset = 0, .bytes = extent_, .used = used_.take({})});
}

// Asked of every fragment for every place: few streams have used one, so only those are looked at.
bool Storage::free_to(const Free& free, int stream, const Marks& waited) const {
  for (uint32_t left = free.streams & ~(uint32_t{1} << stream); left != 0; left &= left - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(left));
    if (used_[free.used][i] > waited[i]) return false;
  }
  return true;
}

size_t Storage::first_run(int64_t bytes, int stream, const Marks& waited) const {
  const auto first_of = [&](const auto& usable) {
    size_t start = 0;
    int64_t begin = 0, end = -1;  // of the stretch of neighbours that goes up to here
    for (size_t at = 0; at < free_.size(); ++at) {
      const Free& free = free_[at];
      if (!usable(free)) {
        end = -1;
        continue;
      }
      if (free.offset != end) {
        start = at;
        begin = free.offset;
      }
      end = free.end();
      if (end - begin >= bytes) return start;
    }
    return free_.size();
  };
  const size_t own = first_of([&](const Free& free) { return free_to(free, stream, waited); });
  if (own < free_.size()) return own;
  return first_of(
      [&](const Free& free) { return clock_ - free.released_at > kSettled || free_to(free, stream, waited); });
}

std::pair<size_t, uint64_t> Storage::oldest_run(int64_t bytes) const {
  size_t oldest = free_.size();
  uint64_t released_at = 0;
  for (size_t start = 0; start < free_.size(); ++start) {
    uint64_t newest = 0;
    int64_t end = free_[start].offset;
    for (size_t at = start; at < free_.size() && free_[at].offset == end && end - free_[start].offset < bytes;
         ++at) {
      newest = std::max(newest, free_[at].released_at);
      end += free_[at].bytes;
    }
    if (end - free_[start].offset < bytes || (oldest != free_.size() && newest >= released_at)) continue;
    oldest = start;
    released_at = newest;
  }
  return {oldest, released_at};
}

template <class Usable>
size_t Storage::top_run(const Usable& usable) const {
  size_t start = free_.size();
  int64_t begin = extent_;
  while (start > 0) {
    const Free& before = free_[start - 1];
    if (before.end() != begin || !usable(before)) break;
    begin = before.offset;
    --start;
  }
  return start;
}

Storage::Place Storage::take(size_t at, int64_t offset, int64_t bytes) {
  Place place;
  place.offset = offset;
  const int64_t end = offset + bytes;
  if (at < free_.size() && free_[at].offset < offset) {
    Free above = free_[at];
    free_[at].bytes = offset - free_[at].offset;
    above.offset = offset;
    above.bytes -= free_[at].bytes;
    above.used = used_.take(used_[above.used]);
    free_.insert(free_.begin() + static_cast<std::ptrdiff_t>(++at), above);
  }
  size_t taken = at;
  for (; taken < free_.size() && free_[taken].offset < end; ++taken) {
    Free& free = free_[taken];
    merge(place.wait_for, used_[free.used]);
    if (const int64_t beyond = free.end() - end; beyond > 0) {
      free.offset = end;
      free.bytes = beyond;
      break;
    }
    used_.give_back(free.used);
  }
  free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(at), free_.begin() + static_cast<std::ptrdiff_t>(taken));
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
  const auto settled = [&](const Free& free) {
    return free_to(free, stream, waited) || clock_ - free.released_at > kSettled;
  };
  size_t at = first_run(bytes, stream, waited);
  if (at < free_.size()) return take(at, free_[at].offset, bytes);

  // Grow, from the free interval at the very top if it is usable; rather wait for others' storage than not fit.
  const auto fits = [&](int64_t start) { return capacity_ == 0 || start + bytes <= capacity_; };
  const auto start_of = [&](size_t top) { return top == free_.size() ? extent_ : free_[top].offset; };
  at = top_run(settled);
  if (fits(start_of(at))) return take(at, start_of(at), bytes);
  at = oldest_run(bytes).first;
  if (at < free_.size()) return take(at, free_[at].offset, bytes);
  return std::nullopt;
}

std::optional<Storage::Place> Storage::find_place_two_ended(int64_t bytes, int stream, const Marks& waited,
                                                            bool brief) {
  bytes = place_bytes(bytes);
  ++clock_;
  // At the nearer end of a run of neighbours that are usable: the highest for what is brief, else the lowest.
  const auto place_among = [&](const auto& usable) -> std::optional<Place> {
    int64_t begin = 0, end = -1;
    if (!brief) {
      size_t start = 0;
      for (size_t at = 0; at < free_.size(); ++at) {
        if (!usable(free_[at])) continue;
        if (free_[at].offset != end) {
          begin = free_[at].offset;
          start = at;
        }
        end = free_[at].end();
        if (end - begin >= bytes) return take(start, begin, bytes);
      }
      return std::nullopt;
    }
    begin = -1;
    for (size_t at = free_.size(); at-- > 0;) {
      if (!usable(free_[at])) continue;
      if (free_[at].end() != begin) end = free_[at].end();
      begin = free_[at].offset;
      if (end - begin >= bytes) return take(at, end - bytes, bytes);
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
  if (oldest == free_.size()) return std::nullopt;
  return place_among([&, last = released_at](const Free& free) { return free.released_at <= last; });
}

// A place from the free intervals at the very top on, whoever used them: first up to the capacity, then beyond it
// by as little as can be.
std::optional<Storage::Place> Storage::grow(int64_t bytes) {
  bytes = place_bytes(bytes);
  const size_t at = top_run([](const Free&) { return true; });
  const int64_t start = at == free_.size() ? extent_ : free_[at].offset;
  if (start + bytes > limit_) return std::nullopt;
  capacity_ = std::max(capacity_, start + bytes);
  return take(at, start, bytes);
}

void Storage::release(int64_t offset, int64_t bytes, const Marks& used) {
  if (watcher != nullptr) watcher->released(offset, used);
  bytes = place_bytes(bytes);
  live_ -= bytes;
  const auto next = std::lower_bound(free_.begin(), free_.end(), offset,
                                     [](const Free& free, int64_t at) { return free.offset < at; });
  HEDDLE_CHECK(next == free_.end() || next->offset >= offset + bytes, "storage at {} is released twice", offset);
  HEDDLE_CHECK(next == free_.begin() || std::prev(next)->end() <= offset, "storage at {} is released twice",
               offset);
  const auto at = static_cast<size_t>(next - free_.begin());
  free_.insert(next, {offset, bytes, clock_, streams_of(used), used_.take(used)});
  join(at);
  if (at > 0) join(at - 1);
}

void Storage::join(size_t at) {
  if (at + 1 >= free_.size()) return;
  Free &free = free_[at], &next = free_[at + 1];
  if (free.end() != next.offset || free.streams != next.streams) return;
  // Else what a step's loads leave at the top, one beside the other, would never settle, and the top would rise
  // with every microbatch.
  const auto settled = [&](const Free& one) { return clock_ - one.released_at > kSettled; };
  const bool small = std::min(free.bytes, next.bytes) <= kSmallBytes;
  if (small && std::popcount(free.streams) > 1 && settled(free) != settled(next)) return;
  free.bytes += next.bytes;
  free.released_at = std::max(free.released_at, next.released_at);
  merge(used_[free.used], used_[next.used]);
  used_.give_back(next.used);
  free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(at) + 1);
}

void Storage::settle(const Marks& ended) {
  for (Free& free : free_) {
    Marks& used = used_[free.used];
    for (size_t i = 0; i < ended.size(); ++i) used[i] = used[i] > ended[i] ? used[i] : 0;
    free.streams = streams_of(used);
  }
  for (size_t at = 0; at < free_.size();) {
    const size_t before = free_.size();
    join(at);
    if (free_.size() == before) ++at;
  }
  if (!two_ended_ && !free_.empty() && free_.back().streams == 0 && free_.back().end() == extent_) {
    extent_ = free_.back().offset;
    used_.give_back(free_.back().used);
    free_.pop_back();
  }
}

int64_t Storage::largest_free_bytes() const {
  int64_t largest = 0, run = 0, end = -1;
  for (const Free& free : free_) {
    run = free.offset == end ? run + free.bytes : free.bytes;
    end = free.end();
    largest = std::max(largest, run);
  }
  if (limit_ > 0) largest = std::max(largest, limit_ - extent_ + (end == extent_ ? run : 0));
  return largest;
}

}  // namespace heddle::ir

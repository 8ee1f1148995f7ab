#include "heddle/ir/storage.h"

#include <algorithm>

namespace heddle::ir {

namespace {
bool free_to(const Marks& used, int stream, const Marks& waited) {
  for (int i = 0; i < kMostStreams; ++i) {
    if (i != stream && used[static_cast<size_t>(i)] > waited[static_cast<size_t>(i)]) return false;
  }
  return true;
}
}  // namespace

std::optional<Storage::Place> Storage::place(int64_t bytes, int stream, const Marks& waited) {
  bytes = std::max(storage_bytes(bytes), kStorageAlignment);
  ++clock_;
  auto settled = free_.end(), oldest = free_.end(), chosen = free_.end();
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    const Free& free = at->second;
    if (free.bytes < bytes) continue;
    if (free_to(free.used, stream, waited)) {
      chosen = at;
      break;
    }
    if (settled == free_.end() && clock_ - free.released_at > kSettled) settled = at;
    if (oldest == free_.end() || free.released_at < oldest->second.released_at) oldest = at;
  }
  if (chosen == free_.end()) chosen = settled;

  Place place;
  const bool fits_above = capacity_ == 0 || high_water_ + bytes <= capacity_;
  if (chosen == free_.end() && (!fits_above || capacity_ == 0)) chosen = oldest;
  if (chosen != free_.end()) {
    place.offset = chosen->first;
    place.wait_for = chosen->second.used;
    if (chosen->second.bytes > bytes) {
      Free rest = chosen->second;
      rest.bytes -= bytes;
      free_.emplace(chosen->first + bytes, rest);
    }
    free_.erase(chosen);
  } else {
    // Grow, from the free interval at the very top if there is one that is too small.
    int64_t start = high_water_;
    if (!free_.empty()) {
      const auto top = std::prev(free_.end());
      if (top->first + top->second.bytes == high_water_ && top->second.bytes < bytes) {
        start = top->first;
        place.wait_for = top->second.used;
      }
    }
    if (capacity_ != 0 && start + bytes > capacity_) return std::nullopt;
    if (start != high_water_) free_.erase(std::prev(free_.end()));
    place.offset = start;
    high_water_ = start + bytes;
  }
  live_ += bytes;
  peak_live_ = std::max(peak_live_, live_);
  return place;
}

void Storage::release(int64_t offset, int64_t bytes, const Marks& used) {
  bytes = std::max(storage_bytes(bytes), kStorageAlignment);
  live_ -= bytes;
  Free free{bytes, used, clock_};
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    free.bytes += next->second.bytes;
    merge(free.used, next->second.used);
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    HEDDLE_CHECK(before->first + before->second.bytes <= offset, "storage at {} is released twice", offset);
    if (before->first + before->second.bytes == offset) {
      before->second.bytes += free.bytes;
      merge(before->second.used, free.used);
      before->second.released_at = free.released_at;
      return;
    }
  }
  free_.emplace(offset, free);
}

void Storage::settle() {
  for (auto& [offset, free] : free_) free.used = {};
}

int64_t Storage::largest_free_bytes() const {
  int64_t largest = 0;
  for (const auto& [offset, free] : free_) largest = std::max(largest, free.bytes);
  return largest;
}

}  // namespace heddle::ir

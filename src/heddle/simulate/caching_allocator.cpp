#include "heddle/simulate/caching_allocator.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::simulate {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kRound = 512;
constexpr int64_t kMostSmall = kMiB;
constexpr int64_t kSmallSegment = 2 * kMiB;
constexpr int64_t kLargeSegment = 20 * kMiB;
constexpr int64_t kOwnSegment = 10 * kMiB;  // from here on
constexpr int64_t kOwnRound = 2 * kMiB;
constexpr uint64_t kSettled = 64;  // requests after which others have done with a block

int64_t round_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

int64_t CachingAllocator::rounded(int64_t bytes) { return std::max(kRound, round_up(bytes, kRound)); }

int64_t CachingAllocator::segment_bytes(int64_t rounded) {
  if (rounded <= kMostSmall) return kSmallSegment;
  return rounded < kOwnSegment ? kLargeSegment : round_up(rounded, kOwnRound);
}

CachingAllocator::Pool::value_type CachingAllocator::key_of(Id block) const {
  const Block& b = blocks_.at(block);
  return {b.stream, b.small, b.bytes, block};
}

CachingAllocator::Id CachingAllocator::allocate(int64_t bytes, int stream) {
  if (bytes <= 0) return -1;
  ++clock_;
  settle(false);
  const int64_t wanted = rounded(bytes);
  const bool small = wanted <= kMostSmall;
  const auto at = pool_.lower_bound({stream, small, wanted, Id{0}});
  const bool found = at != pool_.end() && std::get<0>(*at) == stream && std::get<1>(*at) == small;
  const Id id = found ? std::get<3>(*at) : new_segment(segment_bytes(wanted), stream, small);
  pool_.erase(key_of(id));
  Block& block = blocks_.at(id);
  block.used = true;
  const int64_t left = block.bytes - wanted;
  if (small ? left >= kRound : left > kMostSmall) {
    block.bytes = wanted;
    blocks_.emplace(id + wanted, Block{left, block.segment, stream, small, false});
    pool_.insert(key_of(id + wanted));
  }
  allocated_ += block.bytes;
  peak_allocated_ = std::max(peak_allocated_, allocated_);
  return id;
}

CachingAllocator::Id CachingAllocator::new_segment(int64_t bytes, int stream, bool small) {
  const auto full = [&] { return capacity_ > 0 && reserved_ + bytes > capacity_; };
  if (full()) {
    settle(true);
    give_back_segments();
    if (full()) ++failures_;
  }
  const Id id = next_;
  next_ += bytes;
  segments_.emplace(id, bytes);
  blocks_.emplace(id, Block{bytes, id, stream, small, false});
  pool_.insert(key_of(id));
  reserved_ += bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  return id;
}

void CachingAllocator::free(Id id, bool others) {
  if (id < 0) return;
  const auto at = blocks_.find(id);
  HEDDLE_CHECK(at != blocks_.end() && at->second.used, "block {} is freed twice", id);
  allocated_ -= at->second.bytes;
  if (others) {
    pending_.emplace_back(clock_, id);
  } else {
    make_free(id);
  }
}

void CachingAllocator::make_free(Id id) {
  auto at = blocks_.find(id);
  at->second.used = false;
  const auto joins = [&](const auto& a, const auto& b) {
    return b != blocks_.end() && !b->second.used && b->second.segment == a->second.segment;
  };
  if (const auto next = std::next(at); joins(at, next)) {
    pool_.erase(key_of(next->first));
    at->second.bytes += next->second.bytes;
    blocks_.erase(next);
  }
  if (at != blocks_.begin()) {
    if (const auto before = std::prev(at); joins(at, before)) {
      pool_.erase(key_of(before->first));
      before->second.bytes += at->second.bytes;
      blocks_.erase(at);
      at = before;
    }
  }
  pool_.insert(key_of(at->first));
}

void CachingAllocator::settle(bool all) {
  while (!pending_.empty() && (all || clock_ - pending_.front().first > kSettled)) {
    make_free(pending_.front().second);
    pending_.pop_front();
  }
}

void CachingAllocator::give_back_segments() {
  for (auto at = segments_.begin(); at != segments_.end();) {
    const Block& first = blocks_.at(at->first);
    if (first.used || first.bytes != at->second) {
      ++at;
      continue;
    }
    pool_.erase(key_of(at->first));
    blocks_.erase(at->first);
    reserved_ -= at->second;
    at = segments_.erase(at);
  }
}

}  // namespace heddle::simulate

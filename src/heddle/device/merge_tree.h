// The one order in which the rows of a token are summed, on whichever rank.
//
// Leaves have increasing keys and are the leaves of a binary trie over their bits. Two neighbours join at the level
// of the highest bit in which their keys differ, lower levels first. Keys that share a prefix are summed among
// themselves before anything else joins them. So a rank or a node that holds exactly those keys can hand on their
// sum. The bits of the result do not depend on who added what.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::device {

/// Sums pending at once, at most: one a bit of the key, and the newest.
constexpr int kMostPendingSums = 65;

/// merges[j]: how often, once leaf j is there, the newest sum joins the one before it.
template <class Key>
void merges_of(const Key* keys, int64_t count, uint8_t* merges) {
  int8_t levels[kMostPendingSums];  // between the pending sums
  int pending = 0;
  const auto level = [&](int64_t j) {  // between leaf j - 1 and leaf j
    return static_cast<int8_t>(std::bit_width(static_cast<uint64_t>(keys[j] ^ keys[j - 1])));
  };
  for (int64_t j = 0; j < count; ++j) {
    if (j > 0) levels[pending++] = level(j);
    const int next = j + 1 < count ? level(j + 1) : 127;
    uint8_t joined = 0;
    for (; pending > 0 && levels[pending - 1] < next; --pending) ++joined;
    merges[j] = joined;
  }
}

/// Adds rows of `width` numbers in that order, in A.
template <class A>
class TreeSum {
 public:
  explicit TreeSum(int64_t width) : width_(width) {}

  /// The keys of the leaves that follow, increasing.
  void begin(const std::vector<int64_t>& keys) {
    merges_.resize(keys.size());
    merges_of(keys.data(), std::ssize(keys), merges_.data());
    next_ = pending_ = 0;
  }
  /// The next leaf: factor·row, the product rounded to A.
  template <class X>
  void add(const X* row, A factor) {
    A* sum = push();
    for (int64_t h = 0; h < width_; ++h) sum[h] = factor * static_cast<A>(row[h]);
    join();
  }
  template <class X>
  void add(const X* row) {
    A* sum = push();
    for (int64_t h = 0; h < width_; ++h) sum[h] = static_cast<A>(row[h]);
    join();
  }
  /// When all leaves are there.
  A* total() { return pending_sums_.data(); }

 private:
  A* push() {
    const auto needed = static_cast<size_t>((pending_ + 1) * width_);
    if (pending_sums_.size() < needed) pending_sums_.resize(needed);
    return pending_sums_.data() + pending_++ * width_;
  }
  void join() {
    for (uint8_t m = merges_[next_++]; m > 0; --m) {
      --pending_;
      const A* last = pending_sums_.data() + pending_ * width_;
      A* before = pending_sums_.data() + (pending_ - 1) * width_;
      for (int64_t h = 0; h < width_; ++h) before[h] += last[h];
    }
  }
  int64_t width_;
  std::vector<uint8_t> merges_;
  std::vector<A> pending_sums_;
  int64_t next_ = 0, pending_ = 0;
};

}  // namespace heddle::device

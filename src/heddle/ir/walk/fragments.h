// The free intervals of an arena, by offset. They lie in blocks: one that comes or goes moves few others, and who
// looks for room passes over blocks without a run of neighbours that is long enough. A step has thousands of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace heddle::ir {

struct Fragment {
  int64_t offset = 0, bytes = 0;
  uint64_t released_at = 0;
  uint32_t streams = 0;  // a bit for each that used it
  uint32_t used = 0;     // the number of the marks of its last users
  int64_t end() const { return offset + bytes; }
};

class Fragments {
 public:
  /// A place among them: valid until one is inserted or erased, but for the one that these return.
  struct At {
    uint32_t block = 0, index = 0;
    bool operator==(const At&) const = default;
  };

  At begin() const { return {}; }
  At end() const { return {static_cast<uint32_t>(blocks_.size()), 0}; }
  At next(At at) const {
    return at.index + 1 < blocks_[at.block]->held.size() ? At{at.block, at.index + 1} : At{at.block + 1, 0};
  }
  /// Not of begin().
  At previous(At at) const {
    return at.index > 0 ? At{at.block, at.index - 1}
                        : At{at.block - 1, static_cast<uint32_t>(blocks_[at.block - 1]->held.size()) - 1};
  }
  const Fragment& operator[](At at) const { return blocks_[at.block]->held[at.index]; }
  /// To be changed. Its offset stays between its neighbours'.
  Fragment& change(At at) {
    blocks_[at.block]->runs.known = false;
    return blocks_[at.block]->held[at.index];
  }
  size_t size() const { return size_; }

  /// The first that begins at `offset` or later.
  At from(int64_t offset) const;
  /// Puts one before `at`, and returns its place.
  At insert(At at, const Fragment& fragment);
  /// Returns the place of the next.
  At erase(At at);

  /// The start of the lowest run of usable neighbours that holds so many bytes; end() where none does.
  template <class Usable>
  At lowest_run(int64_t bytes, const Usable& usable) const;
  /// The start of what is needed of the highest such run: from there to its end are so many bytes.
  /// `run_end`: where the run ends.
  template <class Usable>
  At highest_run(int64_t bytes, const Usable& usable, int64_t& run_end) const;

 private:
  static constexpr size_t kMost = 64;
  /// Bytes of runs of neighbours within the block, usable or not: from its first on, the longest, up to its last.
  struct Runs {
    int64_t first = 0, longest = 0, last = 0;
    bool known = false;
  };
  struct Block {
    std::vector<Fragment> held;  // never empty
    mutable Runs runs;
  };
  const Runs& runs_of(const Block& block) const;

  std::vector<std::unique_ptr<Block>> blocks_;
  size_t size_ = 0;
};

template <class Usable>
Fragments::At Fragments::lowest_run(int64_t bytes, const Usable& usable) const {
  At start;
  int64_t begin = 0, end = -1;  // of the run that goes up to here
  for (uint32_t b = 0; b < blocks_.size(); ++b) {
    const std::vector<Fragment>& held = blocks_[b]->held;
    const Runs& runs = runs_of(*blocks_[b]);
    const bool goes_on = held.front().offset == end;
    if (runs.longest < bytes && (!goes_on || end - begin + runs.first < bytes)) {
      size_t i = held.size();  // of the block only the run at its end matters
      int64_t low = held.back().end();
      while (i > 0 && held[i - 1].end() == low && usable(held[i - 1])) low = held[--i].offset;
      if (i == held.size()) {
        end = -1;
        continue;
      }
      end = held.back().end();
      if (i == 0 && goes_on) continue;
      start = {b, static_cast<uint32_t>(i)};
      begin = low;
      continue;
    }
    for (size_t i = 0; i < held.size(); ++i) {
      if (!usable(held[i])) {
        end = -1;
        continue;
      }
      if (held[i].offset != end) {
        start = {b, static_cast<uint32_t>(i)};
        begin = held[i].offset;
      }
      end = held[i].end();
      if (end - begin >= bytes) return start;
    }
  }
  return this->end();
}

template <class Usable>
Fragments::At Fragments::highest_run(int64_t bytes, const Usable& usable, int64_t& run_end) const {
  int64_t begin = -1, end = 0;  // of the run that goes down to here
  for (size_t b = blocks_.size(); b-- > 0;) {
    const std::vector<Fragment>& held = blocks_[b]->held;
    const Runs& runs = runs_of(*blocks_[b]);
    const bool goes_on = held.back().end() == begin;
    if (runs.longest < bytes && (!goes_on || end - begin + runs.last < bytes)) {
      size_t i = 0;
      int64_t high = held.front().offset;
      while (i < held.size() && held[i].offset == high && usable(held[i])) high = held[i++].end();
      if (i == 0) {
        begin = -1;
        continue;
      }
      begin = held.front().offset;
      if (i < held.size() || !goes_on) end = high;
      continue;
    }
    for (size_t i = held.size(); i-- > 0;) {
      if (!usable(held[i])) {
        begin = -1;
        continue;
      }
      if (held[i].end() != begin) end = held[i].end();
      begin = held[i].offset;
      if (end - begin < bytes) continue;
      run_end = end;
      return {static_cast<uint32_t>(b), static_cast<uint32_t>(i)};
    }
  }
  return this->end();
}

}  // namespace heddle::ir

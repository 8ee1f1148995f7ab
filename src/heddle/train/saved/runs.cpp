#include "heddle/train/saved/runs.h"

#include <functional>
#include <queue>

#include "heddle/base/error.h"

namespace heddle::train {

std::vector<Runs> runs_of(const std::vector<model::Extent>& extents) {
  std::vector<Runs> runs;
  int64_t local = 0;
  for (const model::Extent& e : extents) {
    HEDDLE_CHECK(e.local == local, "a part whose elements {} to {} are nowhere", local, e.local);
    local += e.count;
    if (!runs.empty()) {
      Runs& last = runs.back();
      const int64_t end = last.whole + last.stride * (last.times - 1) + last.count;
      if (last.times == 1 && e.whole == end) {
        last.count += e.count;
        continue;
      }
      const int64_t apart = e.whole - (end - last.count);
      if (e.count == last.count && apart > 0 && (last.times == 1 || apart == last.stride)) {
        last.stride = apart;
        ++last.times;
        continue;
      }
    }
    runs.push_back({e.whole, e.count, 0, 1, e.local});
  }
  return runs;
}

namespace {

// True if they lie within a whole of so many, of which `left` are not taken yet. Each factor is at most the whole
// before they are multiplied.
bool lies_within(const Runs& r, int64_t elements, int64_t left) {
  return r.whole >= 0 && r.count > 0 && r.times > 0 && r.stride >= 0 && r.whole < elements && r.count <= elements &&
         r.times <= elements && r.stride <= elements && r.count <= left / r.times &&
         (r.times == 1 || (r.stride >= r.count && r.stride <= (elements - 1 - r.whole) / (r.times - 1)));
}

}  // namespace

bool fit(const std::vector<Runs>& runs, int64_t elements) {
  int64_t left = elements;
  for (const Runs& r : runs) {
    if (r.count <= 0 || r.times <= 0 || r.count > left / r.times) return false;
    left -= r.elements();
  }
  return left == 0;
}

bool cover(const std::vector<const std::vector<Runs>*>& parts, int64_t elements) {
  // The next piece of each run, the first in the whole on top: the runs are taken apart together, piece by piece.
  struct Next {
    int64_t first, count, stride, times;
    bool operator>(const Next& other) const { return first > other.first; }
  };
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  int64_t left = elements;
  for (const std::vector<Runs>* runs : parts) {
    for (const Runs& r : *runs) {
      if (!lies_within(r, elements, left)) return false;
      left -= r.elements();
      next.push({r.whole, r.count, r.stride, r.times});
    }
  }
  if (left != 0) return false;
  int64_t at = 0;
  while (!next.empty()) {
    Next piece = next.top();
    next.pop();
    if (piece.first != at) return false;
    // All of its repetitions that stand before what another run has next.
    const int64_t other = next.empty() ? elements : next.top().first;
    do {
      at += piece.count;
      piece.first += piece.stride;
    } while (--piece.times > 0 && piece.first == at && at < other);
    if (piece.times > 0) next.push(piece);
  }
  return at == elements;
}

}  // namespace heddle::train

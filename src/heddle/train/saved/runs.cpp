#include "heddle/train/saved/runs.h"

#include <utility>

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

bool cover(const std::vector<const std::vector<Runs>*>& parts, int64_t elements) {
  int64_t found = 0;
  std::vector<std::pair<int64_t, int64_t>> pieces;  // first, count
  for (const std::vector<Runs>* runs : parts) {
    for (const Runs& r : *runs) {
      // Each factor is at most the whole before they are multiplied.
      if (r.whole < 0 || r.count <= 0 || r.times <= 0 || r.stride < 0 || r.whole >= elements ||
          r.count > elements || r.times > elements || r.stride > elements ||
          r.count > (elements - found) / r.times ||
          (r.times > 1 && (r.stride < r.count || r.stride > (elements - 1 - r.whole) / (r.times - 1)))) {
        return false;
      }
      found += r.elements();
      for (int64_t i = 0; i < r.times; ++i) pieces.emplace_back(r.whole + i * r.stride, r.count);
    }
  }
  if (found != elements) return false;
  std::sort(pieces.begin(), pieces.end());
  int64_t at = 0;
  for (const auto& [first, count] : pieces) {
    if (first != at) return false;
    at += count;
  }
  return at == elements;
}

}  // namespace heddle::train

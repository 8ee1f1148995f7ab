// The elements of a whole tensor that a part of it holds, in few numbers. They are runs of elements that follow
// each other, as a rank's rows or columns give them, and runs of such runs at equal distances.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "heddle/model/parameter_layout.h"

namespace heddle::train {

/// `times` runs of `count` elements, which begin `stride` elements apart in the whole tensor and lie one behind the
/// other in the part, from its element `local` on.
struct Runs {
  int64_t whole = 0, count = 0, stride = 0, times = 1;
  int64_t local = 0;
  int64_t elements() const { return count * times; }
  bool operator==(const Runs&) const = default;
};

inline int64_t elements_of(const std::vector<Runs>& runs) {
  int64_t elements = 0;
  for (const Runs& r : runs) elements += r.elements();
  return elements;
}

/// The runs of extents that lie one behind the other in the part, in increasing places of the part.
std::vector<Runs> runs_of(const std::vector<model::Extent>& extents);

/// Calls act(local, whole, count) for what of `runs` lies in elements [first, last) of the whole.
template <class Act>
void each_run(const std::vector<Runs>& runs, int64_t first, int64_t last, const Act& act) {
  for (const Runs& r : runs) {
    int64_t from = 0, to = r.times;
    if (r.times > 1) {
      if (first > r.whole) from = std::min(r.times, (first - r.whole) / r.stride);
      if (last < r.whole + r.stride * (r.times - 1))
        to = std::max<int64_t>(from, (last - r.whole + r.stride - 1) / r.stride);
    }
    for (int64_t i = from; i < to; ++i) {
      const int64_t begin = r.whole + i * r.stride;
      const int64_t a = std::max(begin, first), b = std::min(begin + r.count, last);
      if (a < b) act(r.local + i * r.count + a - begin, a, b - a);
    }
  }
}

/// True if runs give each element of a part of `elements` elements its place. Their contents are not trusted.
bool fit(const std::vector<Runs>& runs, int64_t elements);

/// True if the parts' runs hold each element of a whole of so many exactly once. Their contents are not trusted.
/// Takes memory by the number of runs, and time by the number of their repetitions, which a caller bounds (fit).
bool cover(const std::vector<const std::vector<Runs>*>& parts, int64_t elements);

}  // namespace heddle::train

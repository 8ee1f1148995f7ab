#include "heddle/model/parameter_layout.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::model {

std::vector<int64_t> whole_dims(const Parameter& p, const std::vector<int64_t>& local_dims,
                                const ir::Coordinates& place) {
  std::vector<int64_t> dims = local_dims;
  for (const Cut& cut : p.cuts) dims.at(static_cast<size_t>(cut.dim)) *= place.of(cut.axis);
  return dims;
}

std::vector<Extent> extents_of(const Parameter& p, const std::vector<int64_t>& local_dims,
                               const ir::Coordinates& place) {
  const std::vector<int64_t> whole = whole_dims(p, local_dims, place);
  const size_t rank = local_dims.size();
  // For each dim, the extents of indices that stay neighbours: a part of a cut dim, or all of it.
  std::vector<std::vector<Extent>> along(rank);
  for (size_t d = 0; d < rank; ++d) along[d] = {{0, 0, local_dims[d]}};
  for (const Cut& cut : p.cuts) {
    std::vector<Extent>& extents = along[cut.dim];
    HEDDLE_CHECK(extents.size() == 1 && local_dims[cut.dim] % cut.parts == 0,
                 "'{}' is cut twice, or not into whole parts", p.name);
    const int64_t ranks = place.of(cut.axis);
    const std::vector<int64_t> equal(static_cast<size_t>(cut.parts), local_dims[cut.dim] / cut.parts * ranks);
    extents.clear();
    Extent next;
    for (const int64_t run : cut.runs.empty() ? equal : cut.runs) {
      next.count = run / ranks;
      extents.push_back({next.local, next.whole + place.at(cut.axis) * next.count, next.count});
      next.local += next.count;
      next.whole += run;
    }
    HEDDLE_CHECK(next.local == local_dims[cut.dim], "'{}' is not cut into whole runs", p.name);
  }
  std::vector<Extent> joined{{0, 0, 1}};
  for (size_t d = 0; d < rank; ++d) {
    std::vector<Extent> next;
    const bool whole_dim = along[d].size() == 1 && along[d][0].count == whole[d];
    for (const Extent& outer : joined) {
      // Runs so far count indices of the dims before; each becomes rows of this dim.
      if (whole_dim) {
        next.push_back({outer.local * local_dims[d], outer.whole * whole[d], outer.count * whole[d]});
        continue;
      }
      for (int64_t i = 0; i < outer.count; ++i) {
        for (const Extent& extent : along[d]) {
          next.push_back({(outer.local + i) * local_dims[d] + extent.local,
                          (outer.whole + i) * whole[d] + extent.whole, extent.count});
        }
      }
    }
    joined = std::move(next);
  }
  return joined;
}

std::vector<Extent> extents_within(const std::vector<Extent>& extents, int64_t first, int64_t count) {
  std::vector<Extent> within;
  for (const Extent& extent : extents) {
    const int64_t from = std::max(extent.local, first), to = std::min(extent.local + extent.count, first + count);
    if (from < to) within.push_back({from - first, extent.whole + (from - extent.local), to - from});
  }
  return within;
}

std::vector<Extent> extents_at_homes(const Parameter& p, std::vector<Extent> extents, int64_t elements,
                                     const std::vector<int32_t>& position_of_E) {
  const bool is_cut = p.experts > 0 && std::any_of(p.cuts.begin(), p.cuts.end(), [](const Cut& cut) {
                        return cut.dim == 0 && cut.axis == ir::Axis::ep;
                      });
  if (!is_cut) return extents;
  HEDDLE_CHECK(std::ssize(position_of_E) == p.experts, "'{}': {} homes", p.name, position_of_E.size());
  const int64_t each = elements / p.experts;
  std::vector<int64_t> expert_at(position_of_E.size());
  for (size_t e = 0; e < position_of_E.size(); ++e)
    expert_at.at(static_cast<size_t>(position_of_E[e])) = static_cast<int64_t>(e);
  std::vector<Extent> moved;
  for (Extent left : extents) {
    while (left.count > 0) {
      const int64_t home = left.whole / each, within = left.whole % each,
                    count = std::min(left.count, each - within);
      moved.push_back({left.local, expert_at[home] * each + within, count});
      left = {left.local + count, left.whole + count, left.count - count};
    }
  }
  std::sort(moved.begin(), moved.end(), [](const Extent& a, const Extent& b) { return a.whole < b.whole; });
  return moved;
}

}  // namespace heddle::model

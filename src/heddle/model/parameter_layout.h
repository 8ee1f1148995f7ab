// The place of a rank's part of a parameter in the whole tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/model/parameter.h"

namespace heddle::model {

/// `count` elements that follow one another both on the rank and in the whole (row-major) tensor.
struct Extent {
  int64_t local = 0;
  int64_t whole = 0;
  int64_t count = 0;
  bool operator==(const Extent&) const = default;
};

/// Dims of the whole tensor of which a rank at `place` holds `local_dims`.
std::vector<int64_t> whole_dims(const Parameter& p, const std::vector<int64_t>& local_dims,
                                const ir::Coordinates& place);

/// The extents of a rank's part, in increasing local element.
std::vector<Extent> extents_of(const Parameter& p, const std::vector<int64_t>& local_dims,
                               const ir::Coordinates& place);

/// The extents of elements [first, first + count) of the part alone (a shard of the optimizer), local elements from
/// 0.
std::vector<Extent> extents_within(const std::vector<Extent>& extents, int64_t first, int64_t count);

/// The extents of a tensor of `elements` in all whose experts live at these homes, in increasing element of the
/// whole. What lies instead of an expert's number belongs to the expert whose home that is. They stay as they
/// are where the parameter is not cut by experts.
std::vector<Extent> extents_at_homes(const Parameter& p, std::vector<Extent> extents, int64_t elements,
                                     const std::vector<int32_t>& position_of_E);

}  // namespace heddle::model

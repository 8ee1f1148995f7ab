// Counts as doubles, and bytes of a GiB: what closed forms write at every second place.
#pragma once

#include <cstdint>

namespace heddle::search {

inline double d(int64_t n) { return static_cast<double>(n); }
constexpr double kGiB = 1024.0 * 1024 * 1024;

}  // namespace heddle::search

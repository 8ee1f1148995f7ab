// The figures that place_copies and place_rows count of a layer's microbatches, behind the rows of each holder of
// experts. Each rank counts its own part, so that the sum over ranks is the job's. They are whole numbers, whose
// sum has the same bits in any order.
#pragma once

#include <cstdint>

namespace heddle {

enum class PlacedFigure : int64_t {
  rows_moved,       // that copies took
  crossings_saved,  // of rows between nodes, one by one, as the owners' nodes would have had them
  replicas,         // that came to ranks
  by_counts,        // how often a choice ended so: with copies, by the microbatch's counts
  by_history,       // with copies, by the loads of the last steps
  even,             // without, for the load was even
  not_worth,        // without, for none would have paid
};
inline constexpr int64_t kPlacedFigures = 7;

}  // namespace heddle

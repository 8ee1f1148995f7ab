// For schedules that are defined only from some number of microbatches on: make them for more, then leave out what
// belongs to the microbatches that aren't there. What remains keeps its order, so it stays complete and can go on,
// and no rank ever holds more.
#pragma once

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

/// The schedule for its first `microbatches`; a pair that loses one half becomes the other alone. For placements
/// with one route.
Schedule trimmed(Schedule schedule, int microbatches);

}  // namespace heddle::schedule

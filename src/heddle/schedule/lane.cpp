#include "heddle/schedule/lane.h"

#include "heddle/schedule/links.h"

namespace heddle::schedule {

Schedule blank_schedule(const char* name, Placement (*placement)(int ranks), int ranks, int microbatches) {
  if (ranks < 1 || ranks > kMostRanks / 2)
    config_error("schedule {}: {} ranks, accepted 1 to {}", name, ranks, kMostRanks / 2);
  Schedule schedule{name, placement(ranks), microbatches, {}};
  check_size(schedule.placement, microbatches);
  schedule.order.resize(static_cast<size_t>(ranks));
  return schedule;
}

}  // namespace heddle::schedule

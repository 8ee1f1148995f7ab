#include "heddle/schedule/generators/trim.h"

#include "heddle/base/error.h"

namespace heddle::schedule {

Schedule trimmed(Schedule schedule, int microbatches) {
  HEDDLE_CHECK(schedule.placement.routes == 1, "only schedules with one route can be trimmed");
  for (std::vector<Action>& list : schedule.order) {
    std::vector<Action> kept;
    for (const Action& action : list) {
      const bool first = action.first.microbatch < microbatches;
      const bool second = action.with && action.with->microbatch < microbatches;
      if (first && second) {
        kept.push_back(action);
      } else if (first || second) {
        kept.push_back({first ? action.first : *action.with, std::nullopt});
      }
    }
    list = std::move(kept);
  }
  schedule.microbatches = microbatches;
  return schedule;
}

}  // namespace heddle::schedule

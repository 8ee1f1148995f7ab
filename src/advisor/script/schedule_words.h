// Schedules of other trainers, and the word by which each trainer knows them. A schedule without a word follows
// from the degrees, the chunks and the overlap of the exchange.
#pragma once

#include <string_view>
#include <vector>

#include "advisor/script/dialect.h"
#include "advisor/words.h"

namespace heddle::advisor {

struct ScheduleWord {
  std::string_view schedule;  // a row of schedule/generators
  std::vector<Dialect> dialects;
  std::string_view method = "";  // value of --schedules-method: equal stages, as many a rank as the schedule has
};
const std::vector<ScheduleWord>& schedule_words();

/// The value of --schedules-method that means the schedule; "" where none does.
std::string_view method_of(std::string_view schedule);
/// The schedule that a value of --schedules-method means; null where none.
Pipeline pipeline_of_method(std::string_view method);
/// Schedules of a trainer, in the order of the table.
std::vector<Pipeline> schedules_of(Dialect dialect);

}  // namespace heddle::advisor

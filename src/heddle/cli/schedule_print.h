// Prints a schedule in the terminal.
#pragma once

#include <string>

#include "heddle/cli/schedule_result.h"

namespace heddle::cli {

/// "12.5 %"
std::string percent(double rate);
/// Bubble, makespan and efficiency on one line.
std::string line_of(const schedule::Timing& t);
void print(const ScheduleResult& r, const Given& given);

}  // namespace heddle::cli

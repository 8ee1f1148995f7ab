// A schedule as `heddle schedule` was asked for it, timed and proved.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "heddle/cli/schedule_options.h"
#include "synthesis/synthesis.h"

namespace heddle::cli {

struct ScheduleResult {
  std::string what, source;
  schedule::Schedule schedule;
  schedule::Timing timing;
  schedule::Certificate certificate;
  std::optional<schedule::Synthesis> synthesis;

  double largest_peak() const {
    double most = 0;
    for (const schedule::Peak& peak : certificate.peaks) most = std::max(most, peak.bytes);
    return most;
  }
};

/// Times and proves a schedule. ConfigError for one that breaks what the options demand.
ScheduleResult result_of(schedule::Schedule schedule, const Given& given, const ScheduleOptions& options);
/// Returns the schedule by its name, out of a file, or searched for. ConfigError for what the options can't mean.
ScheduleResult chosen(const ScheduleOptions& options, const Given& given);

/// Returns one number of each rank's peak, without the noise of sums.
std::vector<double> numbers(const std::vector<schedule::Peak>& peaks, double schedule::Peak::*field);
/// The most messages of a channel that are received before they are needed.
int most_early(const schedule::Certificate& certificate);
nlohmann::ordered_json json_of(const ScheduleResult& r, const Given& given, bool with_order);

}  // namespace heddle::cli

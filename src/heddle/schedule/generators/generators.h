// All named schedules in one table: what plans, the command line and the search choose from.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/schedule/generators/outline.h"
#include "heddle/schedule/schedule.h"
#include "heddle/schedule/timing.h"

namespace heddle::schedule {

struct GeneratorOptions {
  int ranks = 1;
  int microbatches = 1;
  int chunks = 0;   // stages a rank where the schedule leaves it open; 0: its usual number
  int group = 0;    // microbatches a group (interleaved); 0: as many as ranks
  StageTimes rank;  // what all stages of one rank take together, for schedules made from durations
  double hop = 0;
  double kept_for_w = .43;  // the share of activations that stays until W, for schedules made under a memory limit
};

struct Generator {
  std::string name;
  std::string what;    // in a few words
  std::string source;  // paper or program
  int chunks = 1;      // stages a rank; where free, the usual number
  bool any_chunks = false;
  std::function<Schedule(const GeneratorOptions&)> make;
  Outline outline = {};  // formulas that spare a search to make it; what it lacks is worked out from its orders
};

const std::vector<Generator>& generators();
std::vector<std::string> generator_names();

/// ConfigError that names the nearest one when there is none of this name.
const Generator& find_generator(std::string_view name);

/// The named schedule. ConfigError for an unknown name, and where the options don't suit it, with what does.
Schedule make_schedule(std::string_view name, const GeneratorOptions& options);
Schedule make_schedule(const Generator& generator, const GeneratorOptions& options);

}  // namespace heddle::schedule
